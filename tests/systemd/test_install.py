"""`fairlead install` and `uninstall` on a real host: what is there afterwards, and what is not."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.booted.host import FAIRLEAD, PREFIX, Host
from tests.support.packages import need
from tests.support.patience import eventually

UNITS = "/usr/local/lib/systemd/system"
DAEMON = f"{UNITS}/fairlead-daemon.service"
SETTINGS = "/etc/fairlead/config.yaml"
#: What is the instance's, and not the installation's.
DATA = ("/var/lib/fairlead", "/var/spool/fairlead", "/var/log/fairlead", "/etc/fairlead")
#: What changes on a running host, whoever does what.
_RESTLESS = ("/var/log/journal", "/var/tmp", "/var/cache", "/var/lib/systemd/timers", "/var/lib/dbus", "/home/.")
_ACCOUNTS = tuple(f"/etc/{name}" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid", ".pwd.lock"))


def tree(host: Host, *places: str) -> dict[str, str]:
    """Every file there with what it is, as `find` shows it; the accounts' databases without the backups of them."""
    wanted = places or ("/etc", "/usr/local", "/var", "/home", "/opt/fairlead")
    listed = host.direct("find", *wanted, "-printf", "%p\t%y %m %U:%G %s %l\n")
    lines = dict(line.split("\t", 1) for line in listed.splitlines())
    backups = {f"{name}-" for name in _ACCOUNTS}
    return {
        path: what if not what.startswith("d") else re.sub(r" \d+ $", "", what)
        for path, what in lines.items()
        if not path.startswith(_RESTLESS) and path not in backups and "__pycache__" not in path
    }


def deeds(printed: str) -> dict[str, str]:
    """What was done about each file."""
    found = re.findall(r"^(write|leave|replace|keep|remove) +(/\S+)", printed, re.MULTILINE)
    return {path: deed for deed, path in found}


def is_data(path: str) -> bool:
    return path.startswith(DATA)


# ---------------------------------------------------------------------- the whole of it


def test_one_command_brings_everything_up(fresh_host: Host) -> None:
    """Services run as their account, sockets are there, and `systemctl status` shows the queue."""
    said = fresh_host.fairlead("install", "--enable").stdout
    assert "enabled and started fairlead.target" in said
    for unit in ("fairlead-daemon.service", "fairlead-watchdog.service", "fairlead-api.socket", "fairlead.target"):
        eventually(lambda unit=unit: fresh_host.is_active(unit), f"{unit} does not come up")  # type: ignore[misc]
    assert fresh_host.systemctl("is-enabled", "fairlead.target").strip() == "enabled"
    account = fresh_host.direct("id", "-u", "_fairlead").strip()
    for name in ("daemon", "watchdog"):
        pid = fresh_host.main_pid(f"fairlead-{name}.service")
        assert fresh_host.direct("stat", "-c", "%u", f"/proc/{pid}").strip() == account
    status = eventually(
        lambda: re.search("Status: .*", fresh_host.systemctl("status", "fairlead-daemon.service")), "it has no status"
    )
    assert "0 of 4 slots used, 0 waiting" in status[0]
    fresh_host.systemctl("start", "fairlead-cleanup.service")  # fails if it does


def test_the_command_pages_and_completion_are_found(fresh_host: Host) -> None:
    """By everybody who looks for them where they belong, however private the installer's own files are."""
    fresh_host.run(FAIRLEAD, "install", properties=("UMask=0077",))
    fresh_host.useradd("alice")
    assert fresh_host.run("sh", "-c", "fairlead --version", user="alice").stdout.startswith("fairlead ")
    bash = ". /usr/local/share/bash-completion/completions/fairlead; complete -p fairlead"
    assert "_fairlead" in fresh_host.run("bash", "-c", bash, user="alice").stdout
    if fresh_host.run("sh", "-c", "command -v man", check=False).returncode == 0:
        assert "SYNOPSIS" in fresh_host.run("man", "-P", "cat", "fairlead-submit", user="alice").stdout
        assert "slots.max" in fresh_host.run("man", "-P", "cat", "fairlead.yaml").stdout


def test_done_again_it_changes_nothing(fresh_host: Host) -> None:
    """Every file is left as it is, and so is the list of them."""
    fresh_host.fairlead("install", "--enable")
    before = {path: what for path, what in tree(fresh_host).items() if not is_data(path)}
    again = deeds(fresh_host.fairlead("install", "--enable").stdout)
    assert set(again.values()) == {"leave"}
    assert {path: what for path, what in tree(fresh_host).items() if not is_data(path)} == before


def test_uninstalling_leaves_nothing_but_data(fresh_host: Host) -> None:
    """Neither a file, nor a unit, nor a process; the data and their account stay."""
    before = tree(fresh_host)
    fresh_host.fairlead("install", "--enable")
    eventually(lambda: fresh_host.is_active("fairlead-daemon.service"), "it does not come up")
    fresh_host.run(FAIRLEAD, "uninstall")
    after = tree(fresh_host)
    left = {path for path in after.keys() - before.keys() if not is_data(path)}
    assert left == set()
    changed = {path for path in before.keys() & after.keys() if before[path] != after[path]}
    assert changed <= set(_ACCOUNTS)
    assert before.keys() <= after.keys()
    assert fresh_host.path("/var/lib/fairlead/queue.db").exists()
    assert fresh_host.path(SETTINGS).exists()
    assert fresh_host.systemctl("list-units", "--all", "--no-legend", "fairlead*") == ""
    assert fresh_host.run("pgrep", "-u", "_fairlead", check=False).stdout == ""


def test_purging_leaves_nothing_at_all(fresh_host: Host) -> None:
    """Not even the account."""
    before = tree(fresh_host)
    fresh_host.fairlead("install", "--enable")
    fresh_host.fairlead("uninstall", "--purge", "--yes")
    after = tree(fresh_host)
    assert after.keys() == before.keys()
    for name in ("passwd", "group"):
        assert "fairlead" not in fresh_host.path(f"/etc/{name}").read_text()


def test_purging_asks(fresh_host: Host) -> None:
    """Without a terminal it has to be said with a word."""
    fresh_host.fairlead("install")
    refused = fresh_host.fairlead("uninstall", "--purge", check=False)
    assert refused.returncode == 5
    assert "--yes" in refused.stderr
    assert fresh_host.path(DAEMON).exists()


# ---------------------------------------------------------------------- what others changed


def test_settings_are_never_overwritten(fresh_host: Host) -> None:
    """Neither by an upgrade, nor by force, nor by uninstalling."""
    fresh_host.fairlead("install")
    fresh_host.path(SETTINGS).write_text("slots:\n  max: 7\n")
    assert deeds(fresh_host.fairlead("install", "--force").stdout)[SETTINGS] == "keep"
    assert deeds(fresh_host.fairlead("uninstall").stdout)[SETTINGS] == "keep"
    assert fresh_host.path(SETTINGS).read_text() == "slots:\n  max: 7\n"


def test_only_the_services_read_the_settings(fresh_host: Host) -> None:
    """Agents' keys may be in them."""
    fresh_host.fairlead("install")
    fresh_host.useradd("alice")
    assert fresh_host.run("cat", SETTINGS, user="_fairlead").stdout.startswith("# Every setting")
    assert fresh_host.run("cat", SETTINGS, user="alice", check=False).returncode != 0


def test_a_unit_that_was_changed_by_hand_is_noticed(fresh_host: Host) -> None:
    """It is kept, and said so, unless it is to be replaced; uninstalling leaves it, too."""
    fresh_host.fairlead("install")
    fresh_host.path(DAEMON).write_text("[Service]\nExecStart=/bin/true\n")
    kept = fresh_host.fairlead("install")
    assert deeds(kept.stdout)[DAEMON] == "keep"
    assert "changed by hand" in kept.stdout + kept.stderr
    assert deeds(fresh_host.fairlead("uninstall", "--dry-run").stdout)[DAEMON] == "keep"
    assert deeds(fresh_host.fairlead("install", "--force").stdout)[DAEMON] == "replace"
    assert "fairlead daemon" in fresh_host.path(DAEMON).read_text()


def test_an_older_versions_unit_is_replaced_and_the_service_started_anew(fresh_host: Host) -> None:
    """What was installed and not touched since is ours to replace; what is no longer known goes."""
    fresh_host.fairlead("install", "--enable")
    eventually(lambda: fresh_host.is_active("fairlead-daemon.service"), "it does not come up")
    pid = fresh_host.main_pid("fairlead-daemon.service")
    manifest = fresh_host.path("/usr/local/lib/fairlead/installed.json")
    for path in (DAEMON, f"{UNITS}/fairlead-old.service"):
        fresh_host.path(path).write_text("[Service]\nExecStart=/bin/true\n")
        data = json.loads(manifest.read_text())
        data["files"][path] = fresh_host.direct("sha256sum", path).split()[0]
        manifest.write_text(json.dumps(data))
    said = fresh_host.fairlead("install").stdout
    assert deeds(said)[DAEMON] == "replace"
    assert not fresh_host.path(f"{UNITS}/fairlead-old.service").exists()
    assert "fairlead-daemon.service" in re.findall("started anew: (.*)", said)[0]
    assert fresh_host.main_pid("fairlead-daemon.service") != pid


# ---------------------------------------------------------------------- elsewhere, or not at all


def test_a_dry_run_writes_nothing(booted: Host) -> None:
    """It says what it would do."""
    before = tree(booted)
    said = booted.fairlead("install", "--enable", "--dry-run").stdout
    assert deeds(said)[DAEMON] == "write"
    assert booted.fairlead("uninstall", "--dry-run").stdout == "nothing is installed\n"
    assert tree(booted) == before


def test_a_packager_gets_all_of_it_below_destdir(booted: Host) -> None:
    """And nothing elsewhere: no account, no service, no reload."""
    before = tree(booted)
    words = ("install", "--system", "--prefix", "/usr", "--json")
    said = json.loads(booted.run(FAIRLEAD, *words, env={"DESTDIR": "/tmp/stage"}).stdout)
    assert all(os.path.lexists(booted.path(f"/tmp/stage{file['path']}")) for file in said["files"])
    assert booted.path("/tmp/stage/usr/lib/systemd/system/fairlead.target").exists()
    assert tree(booted) == before
    booted.run(FAIRLEAD, "uninstall", "--system", "--prefix", "/usr", env={"DESTDIR": "/tmp/stage"})
    assert booted.direct("find", "/tmp/stage", "-type", "f").splitlines() == [f"/tmp/stage{SETTINGS}"]
    booted.direct("rm", "-r", "/tmp/stage")


@pytest.fixture
def refusal(booted: Host) -> Iterator["Refusal"]:
    before = tree(booted)
    yield Refusal(booted)
    assert tree(booted) == before


class Refusal:
    """The sentence of an installation that cannot be."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def __call__(self, *command: str, user: str = "", env: dict[str, str] | None = None) -> str:
        done = self.host.run(*command, user=user, env=env, check=False)
        assert (done.returncode, done.stdout) == (5, "")
        return done.stderr


def test_the_system_takes_root(refusal: Refusal) -> None:
    """Others are told what they can have."""
    assert "--user" in refusal(FAIRLEAD, "install", "--system", user="daemon")


@pytest.mark.parametrize(
    ("spoil", "mend", "words"),
    [
        (("chmod", "700", PREFIX), ("chmod", "755", PREFIX), "closed to them"),
        (("chmod", "777", f"{PREFIX}/bin"), ("chmod", "755", f"{PREFIX}/bin"), "others can change"),
        (("chown", "nobody", FAIRLEAD), ("chown", "root", FAIRLEAD), "others can change"),
    ],
)
def test_the_services_must_be_able_to_run_it_and_nobody_to_change_it(
    spoil: tuple[str, ...], mend: tuple[str, ...], words: str, refusal: Refusal
) -> None:
    """What a stranger can change would be run by root."""
    refusal.host.direct(*spoil)
    try:
        said = refusal(FAIRLEAD, "install")
    finally:
        refusal.host.direct(*mend)
    assert words in said
    assert "python3 -m venv /opt/fairlead" in said


def test_without_systemd_it_says_how_to_go_on(refusal: Refusal) -> None:
    """The background is there everywhere."""
    hidden = f"mount -t tmpfs none /run && exec {FAIRLEAD} install"
    assert "fairlead daemon --detach" in refusal("unshare", "--mount", "sh", "-c", hidden)


def test_a_systemd_that_is_too_old_is_named(refusal: Refusal) -> None:
    """With the version that is needed."""
    refusal.host.write("/tmp/old/systemctl", "#!/bin/sh\necho 'systemd 219 (219)'\n", mode=0o755)
    said = refusal(FAIRLEAD, "install", env={"PATH": "/tmp/old:/usr/bin:/bin"})
    assert "systemd 247 or newer is needed; this is systemd 219" in said


# ---------------------------------------------------------------------- units


def test_every_unit_is_what_systemd_expects(fresh_host: Host) -> None:
    """`systemd-analyze verify` has nothing to say, of the system's units and of a user's."""
    fresh_host.fairlead("install")
    fresh_host.useradd("alice")
    fresh_host.linger("alice")
    fresh_host.fairlead("install", "--user", user="alice")
    system = fresh_host.run("sh", "-c", f"systemd-analyze verify {UNITS}/fairlead*")
    own = fresh_host.run("sh", "-c", "systemd-analyze --user verify ~/.config/systemd/user/fairlead*", user="alice")
    assert [system.stdout, system.stderr, own.stdout, own.stderr] == [""] * 4


@pytest.mark.parametrize(
    ("name", "most"),
    [("daemon", 0.8), ("watchdog", 0.7), ("api", 0.7), ("conductor", 0.8), ("cleanup", 0.7), ("porter", 2.2)],
)
def test_what_a_service_could_do_wrong_is_little(name: str, most: float, booted: Host) -> None:
    """`systemd-analyze security` counts what is left open; 10 is everything."""
    shipped = booted.path(f"/opt/source/systemd/fairlead/systemd/units/system/fairlead-{name}.service").read_text()
    booted.write(
        f"/tmp/fairlead-{name}.service", shipped.replace("@FAIRLEAD@", "/bin/true").replace("@PYTHON@", "/bin/true")
    )
    said = booted.run(
        "systemd-analyze", "security", "--offline=true", "--no-pager", f"/tmp/fairlead-{name}.service"
    ).stdout
    assert float(re.search(r"exposure level.*: ([\d.]+)", said)[1]) <= most  # type: ignore[index]


# ---------------------------------------------------------------------- for one user


def test_a_user_gets_a_queue_of_his_own(fresh_host: Host) -> None:
    """Without root: services, socket, command; nothing of it is left afterwards but his data."""
    fresh_host.useradd("alice")
    fresh_host.linger("alice")
    before = tree(fresh_host)
    said = fresh_host.fairlead("install", "--enable", user="alice")
    assert "enabled and started" in said.stdout
    for unit in ("fairlead-daemon.service", "fairlead-watchdog.service", "fairlead-api.socket"):
        eventually(lambda unit=unit: fresh_host.is_active(unit, user="alice"), f"{unit} does not come up")  # type: ignore[misc]
    assert "enable-linger" not in said.stderr
    fresh_host.fairlead("uninstall", user="alice")
    left = tree(fresh_host).keys() - before.keys()
    home = "/home/alice"
    systemds = (".local/share/systemd", ".local/share/systemd/timers")  # systemd's own folder for stamps of timers
    own = {f"{home}/{name}" for name in (".config", ".local", ".local/state", ".local/share", *systemds)}
    data = (f"{home}/.local/state/fairlead", f"{home}/.config/fairlead")
    assert {path for path in left - own if not path.startswith(data)} == set()
    assert fresh_host.systemctl("list-units", "--all", "--no-legend", "fairlead*", user="alice") == ""


def test_lingering_is_explained(fresh_host: Host) -> None:
    """To who would wonder in the morning why nothing ran at night."""
    uid = fresh_host.useradd("alice")
    fresh_host.systemctl("start", f"user@{uid}.service")
    assert "loginctl enable-linger" in fresh_host.fairlead("install", user="alice").stderr


def test_who_has_no_manager_is_told_why(fresh_host: Host) -> None:
    """After su there is no session."""
    fresh_host.useradd("alice")
    refused = fresh_host.fairlead("install", user="alice", check=False)
    assert refused.returncode == 5
    assert "loginctl enable-linger" in refused.stderr


# ---------------------------------------------------------------------- pages


def test_every_page_is_sound(booted: Host, tmp_path: Path) -> None:
    """Groff has nothing to complain about."""
    need("groff")
    booted.run(FAIRLEAD, "install", "--system", env={"DESTDIR": "/tmp/pages"})
    folder = booted.path("/tmp/pages/usr/local/share/man")
    found = sorted(str(path) for path in folder.rglob("fairlead*"))
    assert len(found) > 30
    for page in found:
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Tutf8", "-z", page], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), page
    booted.direct("rm", "-r", "/tmp/pages")
    assert os.listdir(tmp_path) == []
