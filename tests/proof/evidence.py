"""The evidence: what was entered, what the agents noted, what the product left in its files, whom we killed."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
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


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the product's archive says of a task."""

    id: str
    name: str
    status: str
    attempt: int = 1
    reason: str = ""


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
    )


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
