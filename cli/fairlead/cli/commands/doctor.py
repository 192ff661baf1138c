"""fairlead doctor."""

import os
import shutil
from collections.abc import Iterator
from typing import NamedTuple

from fairlead.base.bell import is_heard
from fairlead.base.clock import SystemClock
from fairlead.base.files import names_in
from fairlead.base.text import one_line
from fairlead.cli.arguments import open_connection, parser
from fairlead.cli.output import paint, print_json
from fairlead.conductor.rundir import all_active
from fairlead.config.loading import load
from fairlead.config.paths import Paths, find_paths
from fairlead.config.problems import ConfigError
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.instance import StoreMissingError, refuse_missing_store
from fairlead.queue.lockfiles import LockFiles
from fairlead.queue.locks import LockManager
from fairlead.queue.sqlite.store import SqliteStore
from fairlead.queue.store import Share

#: Less room than this on the instance's disk is worth a word, less than a tenth of it an alarm.
ROOM = 1 << 30
#: File systems on which SQLite's log or our locks do not hold.
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})


class Finding(NamedTuple):
    """One thing that was looked at: ok, warn or fail, and what to do about it."""

    level: str
    what: str
    advice: str = ""


def main(words: list[str]) -> int:
    """Look for what is wrong; 1 if something is."""
    made = parser("doctor", "Look for what is wrong with this instance, and say what to do.", ["fairlead doctor"])
    args = made.parse_args(words)
    findings = list(examine(find_paths()))
    if args.json:
        print_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            advice = f" -> {finding.advice}" if finding.advice else ""
            print(f"{paint(finding.level, f'{finding.level:<4}')}  {one_line(finding.what + advice, 500)}")
    return 1 if any(finding.level == "fail" for finding in findings) else 0


def examine(paths: Paths) -> Iterator[Finding]:
    """Every check, in the order in which a person would mend things."""
    yield from _settings(paths)
    yield from _disk(paths)
    yield from _services(paths)
    yield from _files(paths)
    try:
        refuse_missing_store(paths)
    except StoreMissingError as error:
        yield Finding("fail", str(error), "fairlead rebuild")
        return
    if not os.path.exists(paths.store):
        yield Finding("warn", f"there is no queue at {paths.home} yet", "fairlead up")
        return
    store = SqliteStore(open_connection(paths), Share())
    for check in (_store, _locks, _foreign, _runs, _pauses):
        yield from check(paths, store)


def _settings(paths: Paths) -> Iterator[Finding]:
    try:
        settings = load(paths, os.environ)
    except ConfigError as error:
        yield Finding("fail", str(error), "mend the settings; `fairlead config check` looks again")
        return
    yield Finding("ok", f"settings: {', '.join(settings.files) or 'defaults'}")
    for name, agent in settings.config.agents.items():
        program = agent.command[0]
        if name == settings.config.default_agent and "{" not in program and shutil.which(program) is None:
            yield Finding(
                "fail", f"the default agent {name!r} needs {program!r}, which is not on the PATH", "install it"
            )


def _disk(paths: Paths) -> Iterator[Finding]:
    where = paths.home if os.path.isdir(paths.home) else "/"
    free = shutil.disk_usage(where).free
    level = "ok" if free >= ROOM else "warn" if free >= ROOM // 10 else "fail"
    yield Finding(
        level, f"disk: {free / (1 << 30):.1f} GiB free", "" if level == "ok" else "make room, or `fairlead prune`"
    )
    kind = _file_system(where)
    if kind in REMOTE:
        yield Finding("fail", f"{where} is on {kind}", "put the instance on a local disk")


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
    for name in ("daemon", "watchdog"):
        if is_heard(paths.bells, name):
            yield Finding("ok", f"the {name} runs")
        else:
            yield Finding("fail", f"the {name} does not run", "`fairlead up`, or enable its service")


def _files(paths: Paths) -> Iterator[Finding]:
    rejected = [name for name in names_in(paths.rejected) if name.endswith(".error")]
    if rejected:
        first = os.path.join(paths.rejected, rejected[0])
        yield Finding(
            "warn", f"{len(rejected)} files were refused", f"read {first}, mend the file, move it to the spool"
        )
    waiting = names_in(paths.intake)
    if waiting and not is_heard(paths.bells, "daemon"):
        yield Finding("warn", f"{len(waiting)} files wait to be taken in", "start the daemon")


def _store(_: Paths, store: SqliteStore) -> Iterator[Finding]:
    problems = [row[0] for row in store.db.rows("PRAGMA quick_check(5)") if row[0] != "ok"]
    if problems:
        yield Finding(
            "fail", f"the store is damaged: {'; '.join(problems)}", "stop both services, fairlead rebuild --replace"
        )
    else:
        yield Finding("ok", "the store is sound")


def _locks(_: Paths, store: SqliteStore) -> Iterator[Finding]:
    now = SystemClock().wall_ms()
    for lock in store.locks():
        if lock.state == "quarantined":
            advice = (
                f"look whether {lock.evidence.get('left')} are alive, then `fairlead lock release {lock.user} --force`"
            )
            yield Finding("fail", f"{lock.name} is quarantined since task {lock.task_id}", advice)
        elif lock.expires_at < now and lock.kind == "run":
            yield Finding("warn", f"the lease of {lock.name} is over", "the watchdog ends its run; is it running?")


def _foreign(paths: Paths, store: SqliteStore) -> Iterator[Finding]:
    locks = LockManager(store, LockFiles(paths.locks), SystemClock(), paths.bells, lease=0.0)
    for user in sorted(locks.foreign()):
        advice = f"its maker removes it, or `fairlead lock release {user} --force`"
        yield Finding("warn", f"{locks.files.path(user)} is not Fairlead's: {user} is not dispatched", advice)


def _runs(paths: Paths, store: SqliteStore) -> Iterator[Finding]:
    unknown = [run for run in all_active(paths.conductor) if not _is_known(store, run)]
    if unknown:
        yield Finding("warn", f"{len(unknown)} run directories belong to no task, like {unknown[0]}", "look at them")


def _is_known(store: SqliteStore, run_dir: str) -> bool:
    try:
        store.get(os.path.basename(run_dir).rpartition(".")[0])
    except NoSuchTaskError:
        return False
    return True


def _pauses(_: Paths, store: SqliteStore) -> Iterator[Finding]:
    for pause in store.pauses():
        yield Finding("warn", f"{pause.scope} is paused by {pause.by} {pause.reason}", f"fairlead resume {pause.scope}")
