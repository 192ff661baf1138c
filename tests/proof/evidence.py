"""The evidence: what was entered, what the agents noted, what the product left in its files, whom we killed."""

import glob
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple


class Process(NamedTuple):
    """One process of this boot, never reused: pid and start in clock ticks."""

    pid: int
    start: int


class Run(NamedTuple):
    """One attempt at a task, by the product's own id."""

    task: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A task that was handed to the product, under a name of the judge's own."""

    name: str
    user: str
    #: The product said that it has it.
    acknowledged: bool
    #: It may be run again once an attempt is lost.
    idempotent: bool = False


@dataclass(frozen=True, kw_only=True)
class Start:
    """An agent's word that it began."""

    name: str
    user: str
    at: int
    process: Process
    parent: Process
    run: Run
    #: Who had the user's flock; empty: nobody.
    held_by: str = ""
    #: No earlier start of this task left its mark.
    first: bool = True


@dataclass(frozen=True, kw_only=True)
class End:
    """An agent's word that it is about to exit, and with which code."""

    name: str
    at: int
    process: Process
    code: int


class Kind(StrEnum):
    """What a person may ask for after a task was entered."""

    CANCEL = "cancel"
    RETRY = "retry"


@dataclass(frozen=True, kw_only=True)
class Request:
    """Somebody's wish to cancel a task or to run it again; times are nanoseconds of CLOCK_BOOTTIME."""

    kind: Kind
    name: str
    #: The command was started, and had ended: what it did, it did in between.
    asked: int
    answered: int
    #: The status in the product's answer; empty: there was none, and it may have been done or not.
    said: str = ""
    #: The attempt that was archived, or active, before the command was started.
    attempt: int = 0


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the product's archive says of a task."""

    id: str
    name: str
    status: str
    attempt: int = 1
    reason: str = ""
    #: When its last attempt began by the product's own word, in nanoseconds of CLOCK_BOOTTIME.
    began: int | None = None


@dataclass(kw_only=True)
class Evidence:
    """Everything that the judge looks at."""

    entered: dict[str, Entered] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    #: Tasks whose mark is there: started, even if they died before their note.
    marks: set[str] = field(default_factory=set)
    records: list[Record] = field(default_factory=list)
    #: Who supervised which attempt, by the product's run directories.
    supervisors: dict[Run, Process] = field(default_factory=dict)
    killed: set[Process] = field(default_factory=set)
    #: When each of them was killed.
    killed_at: dict[Process, int] = field(default_factory=dict)
    #: What was asked for, but for what the product refused.
    requests: list[Request] = field(default_factory=list)
    #: How many tasks may run at once.
    slots: int = 0
    #: When the last process after a power cut was dead, in nanoseconds of CLOCK_BOOTTIME.
    cuts: list[int] = field(default_factory=list)
    #: Tasks whose files were still waiting when nothing moved any more.
    waiting: set[str] = field(default_factory=set)
    #: What of the product or its agents was still alive after the end.
    alive: list[str] = field(default_factory=list)
    #: Task files that the product refused; all of ours are good.
    rejected: list[str] = field(default_factory=list)
    #: Services that ended although nobody killed them.
    crashes: list[str] = field(default_factory=list)


# ---------------------------------------------------------------------- the witness's own files


def read_notes(path: str) -> Iterator[dict[str, Any]]:
    """Every complete note, in the order of writing."""
    try:
        with open(path, encoding="utf-8") as file:
            yield from (json.loads(line) for line in file if line.endswith("\n"))
    except FileNotFoundError:
        return


def add_notes(evidence: Evidence, witness: str) -> None:
    """Take in what the agents noted."""
    for note in read_notes(os.path.join(witness, "notes")):
        if note["event"] == "start":
            evidence.starts.append(_start(note))
        elif note["event"] == "end":
            evidence.ends.append(
                End(name=note["name"], at=note["at"], process=_process(note), code=note["code"]),
            )
    evidence.marks |= set(os.listdir(os.path.join(witness, "marks")))


def _start(note: dict[str, Any]) -> Start:
    return Start(
        name=note["name"],
        user=note["user"],
        at=note["at"],
        process=_process(note),
        parent=Process(note["parent"], note["parent_start"]),
        run=Run(note["task"], note["attempt"]),
        held_by=note["held_by"].strip(),
        first=bool(note["first"]),
    )


def _process(note: dict[str, Any]) -> Process:
    return Process(note["pid"], note["pid_start"])


# ---------------------------------------------------------------------- the product's files


def archived(home: str) -> Iterator[Record]:
    """Every record in the product's archive."""
    for path in _files(os.path.join(home, "archive")):
        if path.endswith(".json"):
            yield _record(path)


def archived_at(path: str) -> Record | None:
    """One record, if it is still there and whole."""
    record = _record(path)
    return record if record.name else None


def archive_paths(home: str) -> list[str]:
    """Where the records are, without reading them."""
    return [path for path in _files(os.path.join(home, "archive")) if path.endswith(".json")]


def live_tasks(home: str) -> dict[str, str]:
    """The judge's name of every accepted task that is not archived, by the product's id."""
    paths = _files(os.path.join(home, "accepted"))
    found = {os.path.basename(path).partition(".")[0]: names_in_file(path) for path in paths}
    return {task_id: name for task_id, names in found.items() for name in names}


def active_runs(home: str) -> list[Run]:
    """The attempts that have a run directory among the living."""
    names = (name for place in glob.glob(os.path.join(home, "conductor", "*", "active")) for name in _names(place))
    parts = (name.rpartition(".") for name in names)
    return [Run(task, int(number)) for task, _, number in parts if number.isdigit()]


def _names(place: str) -> list[str]:
    try:
        return os.listdir(place)
    except FileNotFoundError:
        return []


def count_archived(home: str) -> int:
    """How many records there are, without reading them."""
    return sum(path.endswith(".json") for path in _files(os.path.join(home, "archive")))


def _record(path: str) -> Record:
    data = _json_or_none(path)
    if not isinstance(data, dict):
        return Record(id=os.path.basename(path), name="", status="unreadable")
    return Record(
        id=data["id"],
        name=name_in(data),
        status=data["status"],
        attempt=data["attempt"],
        reason=data.get("reason") or "",
        began=_boot_ns(data.get("started_at")),
    )


def _boot_ns(moment: str | None) -> int | None:
    """A moment of the wall clock by the clock that never jumps, as they stand to each other now."""
    if moment is None:
        return None
    ago = time.time_ns() - int(datetime.fromisoformat(moment).timestamp() * 1e9)
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ago


def name_in(task: dict[str, Any]) -> str:
    """The judge's name of a task, from its payload."""
    return str((task.get("payload") or {}).get("name", ""))


def supervisors(home: str) -> dict[Run, Process]:
    """Who supervised each attempt whose run directory is still there."""
    found = {}
    for path in _files(os.path.join(home, "conductor")):
        if os.path.basename(path) == "meta.json":
            meta = _json_or_none(path) or {}
            if by := meta.get("supervisor"):
                found[Run(meta["id"], meta["attempt"])] = Process(by["pid"], by["start"])
    return found


def rejected(home: str) -> list[str]:
    """The names of refused files."""
    return sorted(os.path.basename(path) for path in _files(os.path.join(home, "spool", "rejected")))


def names_in_files(home: str, *places: str) -> set[str]:
    """The judge's names of all task files below these places of an instance."""
    paths = (path for place in places for path in _files(os.path.join(home, place)))
    return {name for path in paths for name in names_in_file(path)}


def names_in_file(path: str) -> set[str]:
    """The judge's name of the task in a file, if there is one."""
    task = _json_or_none(path)
    return {name_in(task)} - {""} if isinstance(task, dict) else set()


def _files(place: str) -> Iterator[str]:
    for folder, _, names in os.walk(place):
        yield from (os.path.join(folder, name) for name in names if not name.startswith("."))


def _json_or_none(path: str) -> Any:  # noqa: ANN401 - whatever the file holds
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return None
