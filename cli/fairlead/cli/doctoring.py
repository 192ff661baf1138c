"""What may be wrong with an instance: every check says what it found, and what to do about it."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from fairlead.base.bell import is_heard
from fairlead.base.dropping import is_left_alone
from fairlead.base.durations import show_duration
from fairlead.base.errors import FairleadError
from fairlead.base.files import names_in
from fairlead.cli.access import Access
from fairlead.cli.output import counted
from fairlead.cli.quick import OTHER_HOME
from fairlead.conductor.rundir import all_active
from fairlead.config.loading import load
from fairlead.config.paths import Paths
from fairlead.config.problems import ConfigError
from fairlead.config.schema import Config
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.instance import StoreMissingError, refuse_missing_store, reserve_of
from fairlead.queue.room import Reserve, shortage
from fairlead.queue.services import SERVICES, starter
from fairlead.queue.store import Store

#: Less room than this on the instance's disk is worth a word, less than a tenth of it an alarm.
ROOM = 1 << 30
#: File systems on which SQLite's log or our locks do not hold.
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})


class Finding(NamedTuple):
    """One thing that was looked at: ok, warn or fail, and what to do about it."""

    level: str
    what: str
    advice: str = ""


def examine(paths: Paths) -> Iterator[Finding]:
    """Every check, in the order in which a person would mend things."""
    if refusal := _refusal(paths.home):
        yield Finding("fail", f"{paths.home}: {refusal}", OTHER_HOME)
        return
    yield from _settings(paths)
    yield from _disk(paths)
    yield from _services(paths)
    yield from _files(paths)
    yield from _store(paths)


# ---------------------------------------------------------------------- around the store


def _refusal(home: str) -> str:
    """Why the instance's directory cannot be used; nothing if it can, or is still to be made."""
    try:
        os.listdir(home)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return "" if os.access(home, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)


def _settings(paths: Paths) -> Iterator[Finding]:
    try:
        settings = load(paths, os.environ)
    except ConfigError as error:
        for problem in error.problems:
            yield Finding("fail", f"settings: {problem}", "`fairlead config check` looks again")
        return
    yield Finding("ok", f"settings: {', '.join(settings.files) or 'defaults'}")
    yield from _agents(settings.config)


def _agents(config: Config) -> Iterator[Finding]:
    """Agents that somebody has chosen; nobody needs all of those that are built in."""
    chosen = {config.default_agent, *(project.agent for project in config.projects.values() if project.agent)}
    for name in sorted(chosen):
        program = config.agents[name].command[0]
        if "{" not in program and shutil.which(program) is None:
            yield Finding("fail", f"agent {name} needs {program}, which is not on the PATH", "install it")


def _disk(paths: Paths) -> Iterator[Finding]:
    where = paths.home if os.path.isdir(paths.home) else "/"
    if short := shortage(where, _reserve(paths)):
        yield Finding("fail", f"disk: {short}", "until then nothing new is begun; `fairlead prune` may help")
    free = shutil.disk_usage(where).free
    level = "ok" if free >= ROOM else "warn" if free >= ROOM // 10 else "fail"
    advice = "" if level == "ok" else "make room; `fairlead prune` may help"
    yield Finding(level, f"disk: {free / (1 << 30):.1f} GiB free", advice)
    kind = _file_system(where)
    if kind in REMOTE:
        yield Finding("fail", f"{where} is on {kind}", "put the instance on a local disk")


def _reserve(paths: Paths) -> Reserve:
    """What is kept back; what is wrong with the settings has been said."""
    try:
        return reserve_of(load(paths, os.environ).config)
    except ConfigError:
        return reserve_of(Config())


def _file_system(path: str) -> str:
    """The type of the file system that holds a path."""
    best, kind = "", ""
    with open("/proc/mounts", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            _, place, found, *_ = line.split(" ")
            if (path + "/").startswith(place.rstrip("/") + "/") and len(place) >= len(best):
                best, kind = place, found
    return kind


def _services(paths: Paths) -> Iterator[Finding]:
    for name in SERVICES:
        if is_heard(paths.bells, name):
            yield Finding("ok", f"the {name} runs")
        else:
            yield Finding("fail", f"the {name} does not run", f"`{starter(paths, name)}`")


def _files(paths: Paths) -> Iterator[Finding]:
    errors = [name for name in names_in(paths.rejected) if name.endswith(".error")]
    if errors:
        first = os.path.join(paths.rejected, errors[0])
        yield Finding("warn", counted(len(errors), "refused file"), f"read {first}, mend the file, move it back")
    waiting = [*names_in(paths.intake), *(name for name in names_in(paths.spool) if not is_left_alone(name))]
    if waiting and not is_heard(paths.bells, "daemon"):
        what = f"{counted(len(waiting), 'file')} in the spool, and nobody takes them in"
        yield Finding("warn", what, f"`{starter(paths, 'daemon')}`")


# ---------------------------------------------------------------------- the store, and what it knows


def _store(paths: Paths) -> Iterator[Finding]:
    try:
        refuse_missing_store(paths)
    except StoreMissingError as error:
        yield Finding("fail", str(error), "fairlead rebuild")
        return
    if not os.path.exists(paths.store):
        yield Finding("warn", f"there is no queue at {paths.home} yet", "fairlead up")
        return
    yield from _rights(paths.store)
    try:
        yield from _inside(Access(paths))
    except FairleadError as error:
        yield Finding("fail", str(error), "stop both services, then `fairlead rebuild --replace`")


def _rights(store: str) -> Iterator[Finding]:
    """The store holds everybody's prompts: it is its owner's alone."""
    for path in (store, f"{store}-wal", f"{store}-shm"):
        with suppress(FileNotFoundError):  # the log goes with whoever closes the store last
            mode = stat.S_IMODE(os.stat(path).st_mode)
            if mode & 0o077:
                yield Finding("warn", f"{path} has mode {mode:04o}: others may get at it", f"chmod 600 {path}")


def _inside(access: Access) -> Iterator[Finding]:
    if problems := access.store.damage():
        advice = "stop both services, then `fairlead rebuild --replace`"
        yield Finding("fail", f"the store is damaged: {'; '.join(problems)}", advice)
    else:
        yield Finding("ok", "the store is sound")
    for check in (_locks, _foreign, _runs, _pauses):
        yield from check(access)


def _locks(access: Access) -> Iterator[Finding]:
    for lock in access.store.locks():
        if lock.state == "quarantined":
            left = lock.evidence.get("left")
            advice = f"look whether {left} are alive, then `fairlead lock release {lock.user or lock.name} --force`"
            yield Finding("fail", f"{lock.name} is quarantined since task {lock.task_id}", advice)
        elif lock.expires_at < access.clock.wall_ms() and lock.kind == "run":
            yield Finding("warn", f"the lease of {lock.name} is over", "the watchdog ends its run; is it running?")


def _foreign(access: Access) -> Iterator[Finding]:
    locks = access.locks
    for found in filter(None, map(locks.files.read, sorted(locks.foreign()))):
        age = show_duration(int(found.age or 0))
        what = f"{found.path} is not Fairlead's ({found.maker}, {age} old): {found.user} is not dispatched"
        yield Finding("warn", what, f"its maker removes it, or `fairlead lock release {found.user} --force`")


def _runs(access: Access) -> Iterator[Finding]:
    unknown = [run for run in all_active(access.paths.conductor) if not _is_known(access.store, run)]
    if unknown:
        what = f"{counted(len(unknown), 'run')} of no known task, like {unknown[0]}"
        yield Finding("warn", what, "look inside, then remove what is not needed")


def _is_known(store: Store, run_dir: str) -> bool:
    try:
        store.get(os.path.basename(run_dir).rpartition(".")[0])
    except NoSuchTaskError:
        return False
    return True


def _pauses(access: Access) -> Iterator[Finding]:
    for pause in access.store.pauses():
        what = f"{pause.scope} is paused by {pause.by}" + (f": {pause.reason}" if pause.reason else "")
        yield Finding("warn", what, f"`fairlead resume {pause.scope}` goes on")
