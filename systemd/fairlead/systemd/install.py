"""Putting Fairlead in place, and taking it away again. Whatever is there and was not put there stays as it is."""

import grp
import os
import pwd
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress

from fairlead.base.errors import RefusedError
from fairlead.base.files import names_in, remove
from fairlead.config.example import example
from fairlead.systemd import program
from fairlead.systemd.manager import SERVICES, TARGET, Manager, run
from fairlead.systemd.manifest import Deed, File, Manifest, Step, mark_for, mark_of
from fairlead.systemd.places import ACCOUNT, GROUP, Places, Scope

#: What has to be done about each file.
Plan = list[tuple[Step, File]]
_UNITS = os.path.join(os.path.dirname(__file__), "units")
#: Where supervisors may be, and what outlived them.
_WITH_SUPERVISORS = ("fairlead-conductor.service", "fairlead-daemon.service")
_EDITED = "changed by hand; --force replaces it, `systemctl edit` changes it for good"


class Installation:
    """Fairlead's files in one place, and its services."""

    def __init__(self, places: Places, extras: Iterable[File] = ()) -> None:
        self.places = places
        self.manager = Manager(places.scope)
        self.manifest = Manifest(places.real(places.manifest))
        self._extras = tuple(extras)

    @property
    def is_staged(self) -> bool:
        """Whether this is a packager's tree, and no running system."""
        return bool(self.places.root)

    # ------------------------------------------------------------------ what belongs to it

    def files(self) -> list[File]:
        """Every file of the installation."""
        places, is_system = self.places, self.places.scope is Scope.SYSTEM
        files = [File(path=f"{places.units}/{name}", content=text) for name, text in self._filled(places.scope)]
        if is_system:
            for kind in ("sysusers.d", "tmpfiles.d"):
                files += [File(path=f"{places.lib}/{kind}/{name}", content=text) for name, text in self._filled(kind)]
        files += self._extras
        command = program.command()
        if command != places.command:
            files.append(File(path=places.command, link=command))
        settings = example().encode()
        # Agents' keys may be in there: only the services read it.
        mode = 0o640 if is_system else 0o600
        return [*files, File(path=places.config_file, content=settings, mode=mode, is_settings=True)]

    def _filled(self, folder: str) -> list[tuple[str, bytes]]:
        """The shipped files of a folder, with the paths of this installation filled in."""
        paths = {"@FAIRLEAD@": program.command(), "@PYTHON@": program.python(), "@RUN@": self.places.run}
        return [(name, _fill(os.path.join(_UNITS, folder, name), paths)) for name in names_in(f"{_UNITS}/{folder}")]

    # ------------------------------------------------------------------ install

    def check(self) -> None:
        """Refuse what cannot work, with what to do about it."""
        if self.is_staged:
            return
        if self.places.scope is Scope.SYSTEM:
            if os.geteuid() != 0:
                raise RefusedError("installing for the system takes root; `fairlead install --user` is for you alone.")
            program.check_for_all()
        self.manager.check()

    def plan(self, *, force: bool = False) -> Plan:
        """What has to be done about each file."""
        return [(self._step(file, force=force), file) for file in self.files()]

    def _step(self, file: File, *, force: bool) -> Step:
        real = self.places.real(file.path)
        there = mark_of(real)
        if not there:
            return Step(Deed.WRITE, file.path)
        if there == mark_for(file):
            return Step(Deed.LEAVE, file.path)
        if file.is_settings:
            return Step(Deed.KEEP, file.path, "your settings")
        if self.manifest.is_ours(file.path, real) or force:
            return Step(Deed.REPLACE, file.path)
        return Step(Deed.KEEP, file.path, _EDITED)

    def carry_out(self, plan: Plan) -> None:
        """Write what the plan says, and let systemd know."""
        for step, file in plan:
            if step.deed in (Deed.WRITE, Deed.REPLACE):
                self.manifest.put(file, self.places.root)
            elif step.deed is Deed.LEAVE:
                self.manifest.files.setdefault(file.path, mark_for(file))
        self._drop_obsolete({file.path for _, file in plan})
        self.manifest.save(self.places.root, self.places.manifest)
        if not self.is_staged:
            self._settle(plan)

    def _drop_obsolete(self, wanted: set[str]) -> None:
        """Remove what an earlier version had put there and this one does not know any more."""
        for path in set(self.manifest.files) - wanted:
            if self.manifest.is_ours(path, self.places.real(path)):
                remove(self.places.real(path))
            self.manifest.forget(path)

    def _settle(self, plan: Plan) -> None:
        """Accounts and directories, the settings' owner, and the manager's knowledge of the units."""
        places = self.places
        if places.scope is Scope.SYSTEM:
            run("systemd-sysusers", f"{places.lib}/sysusers.d/fairlead.conf")
            run("systemd-tmpfiles", "--create", os.path.join(places.lib, "tmpfiles.d", "fairlead.conf"))
            if any(file.is_settings and step.deed is Deed.WRITE for step, file in plan):
                os.chown(places.config_file, 0, grp.getgrnam(ACCOUNT).gr_gid)
        self.manager.do("daemon-reload")

    def start(self, plan: Plan, *, enable: bool) -> list[str]:
        """Enable and start all of it, or start anew what runs; returns what was done, in words."""
        was_active = self.manager.is_active(TARGET)
        if enable:
            self.manager.do("enable", TARGET)
        if was_active:
            return self._restart(plan)
        if enable:
            self.manager.do("start", TARGET)
            return ["enabled and started fairlead.target"]
        return []

    def _restart(self, plan: Plan) -> list[str]:
        """An upgrade: everything is started anew but the conductor, whose supervisors look after agents."""
        running = [name for name in SERVICES if self.manager.is_active(f"fairlead-{name}.service")]
        anew = [f"fairlead-{name}.service" for name in running if name != "conductor"]
        self.manager.do("start", TARGET)
        self.manager.do("try-restart", *anew)
        said = [f"started anew: {' '.join(anew)}"]
        if "conductor" in running and self._has_changed(plan, "fairlead-conductor.service"):
            said.append(
                "fairlead-conductor.service was left running; `systemctl restart fairlead-conductor` takes the new one,"
                " and leaves running agents alone"
            )
        return said

    def _has_changed(self, plan: Plan, unit: str) -> bool:
        return any(step.path.endswith(f"/{unit}") and step.deed is Deed.REPLACE for step, _ in plan)

    @property
    def lingers(self) -> bool:
        """Whether a user's services go on when he has logged out."""
        return os.path.exists(f"/var/lib/systemd/linger/{pwd.getpwuid(os.getuid()).pw_name}")

    # ------------------------------------------------------------------ uninstall

    def plan_removal(self, *, purge: bool) -> list[Step]:
        """What would go, and what stays."""
        steps = []
        for path in self.manifest.files:
            is_settings = path == self.places.config_file
            if is_settings and not purge:
                steps.append(Step(Deed.KEEP, path, "your settings; --purge removes them"))
            elif is_settings or self.manifest.is_ours(path, self.places.real(path)):
                steps.append(Step(Deed.REMOVE, path))
            elif mark_of(self.places.real(path)):
                steps.append(Step(Deed.KEEP, path, "changed by hand"))
        deed, why = (Deed.REMOVE, "") if purge else (Deed.KEEP, "data; --purge removes it")
        steps += [Step(deed, path, why) for path in self._data() if os.path.isdir(path)]
        return steps

    def _data(self) -> list[str]:
        """The directories of the instance, and of its settings."""
        if self.is_staged:
            return []
        paths = self.places.instance
        own = [paths.home, os.path.dirname(self.places.config_file)]
        return [*own, paths.spool, paths.logs] if self.places.scope is Scope.SYSTEM else own

    def check_removal(self) -> None:
        """Refuse what cannot work."""
        if self.places.scope is Scope.SYSTEM and not self.is_staged and os.geteuid() != 0:
            raise RefusedError("uninstalling from the system takes root; --user removes what is yours.")

    def end_agents(self) -> None:
        """Start nothing more, and end whatever an agent runs in; the watchdog records it."""
        self.manager.stop("fairlead-daemon.service")
        self.manager.stop(*self.manager.known("fairlead-run-*"))
        for unit in _WITH_SUPERVISORS:
            self.manager.end_all_of(unit, "TERM")

    def stop(self) -> None:
        """Stop and disable everything."""
        if self.is_staged:
            return
        if mark_of(f"{self.places.units}/{TARGET}"):
            self.manager.do("disable", TARGET)
        for unit in _WITH_SUPERVISORS:
            self.manager.end_all_of(unit, "KILL")
        units = [unit for unit in self.manager.known("fairlead*") if not unit.endswith(".slice")]
        self.manager.stop(*units, *self.manager.known("fairlead.slice"))
        self.manager.forget_last_run(*[unit for unit in units if unit.endswith(".timer")])

    def remove(self, steps: list[Step]) -> None:
        """Take away what the plan says."""
        kept = [step.path for step in steps if step.deed is Deed.KEEP]
        purged = {step.path for step in steps if step.deed is Deed.REMOVE}
        for path in [path for path in self.manifest.files if path in purged]:
            remove(self.places.real(path))
        for path in self._data():
            if path in purged:
                shutil.rmtree(path)
        if self.places.scope is Scope.SYSTEM and not self.is_staged:
            shutil.rmtree(self.places.run, ignore_errors=True)
            self._remove_accounts(are_purged=not kept)
        self.manifest.remove(self.places.root)
        if not self.is_staged:
            self.manager.do("daemon-reload")
            self.manager.do("reset-failed")

    def _remove_accounts(self, *, are_purged: bool) -> None:
        """The account owns data as long as there are any; the group is removed with it."""
        if not are_purged:
            return
        with suppress(KeyError):
            pwd.getpwnam(ACCOUNT)
            run("userdel", ACCOUNT)
        with suppress(KeyError):
            grp.getgrnam(GROUP)
            run("groupdel", GROUP)


def _fill(path: str, values: Mapping[str, str]) -> bytes:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for name, value in values.items():
        text = text.replace(name, value)
    return text.encode()
