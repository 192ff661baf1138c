"""The judge: looks at the evidence alone, and objects.

What each combination proves, for one task:

====================  ==============================================================================================
archive says          it stands if
====================  ==============================================================================================
nothing               the task was never acknowledged
completed             its last start has an end with exit code 0
failed                its last start has an end with another code, or we killed that agent
lost                  we killed the supervisor of its last attempt, or cut the power while it ran
cancelled             somebody asked for it, and did so after the last retry that was acknowledged
anything else         never: all must have ended when the judge looks
====================  ==============================================================================================

An agent notes its end before it exits, and its supervisor writes the end down after that. So an end with `lost` is no
contradiction if the supervisor was killed in between; an end that nobody kept the product from recording is one.

However it ended, a task starts once per attempt, and has one attempt. A retry is worth another one. An idempotent task
may start again after each attempt whose supervisor we killed (or whose power we cut). Nobody ever starts while anything
of the same user's earlier run is alive.

An acknowledged request is a promise, too. After a cancel no attempt begins but the one that was on its way, unless
somebody asks for a retry after that; after a retry there is another attempt, unless somebody cancels it.

A run that a power cut ended before its agent could note anything is known by the product's word alone. It is believed
for as many as can have been in that moment: one for each slot, begun shortly before the cut.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tests.proof.evidence import End, Entered, Evidence, Kind, Process, Record, Request, Run, Start

#: After an agent's end its supervisor has this long to record it before a power cut excuses nothing any more.
RECORDING = 10 * 10**9
#: Once a run has begun, its agent has this long to note its start.
STARTING = 10 * 10**9


class Charge(StrEnum):
    """What the product can be found guilty of."""

    LOST = "acknowledged, and nowhere any more"
    STUCK = "acknowledged, and waiting although nothing moves"
    DOUBLED = "in the archive under two ids"
    RUN_TWICE = "run twice"
    OVERLAP = "two runs of one user at once"
    UNFINISHED = "archived with a status that is not final"
    NOT_RUN = "completed without an end"
    WRONG_END = "ended otherwise than the archive says"
    NEEDLESS = "lost or failed although nothing of it was killed"
    UNNOTED = "lost without a start, more often than a cut can explain"
    UNASKED = "cancelled although nobody asked for it"
    CANCELLED_RAN = "started after its cancel was acknowledged"
    FORGOTTEN = "asked for, acknowledged, and not done"
    UNKNOWN = "in the archive, and never entered"
    LEFT_BEHIND = "alive after the end"
    REJECTED = "a good task file was refused"
    BROKEN = "the store cannot be read"
    CRASHED = "a service ended by itself"


@dataclass(frozen=True)
class Objection:
    """One thing that is wrong, and what shows it."""

    charge: Charge
    what: str

    def __str__(self) -> str:
        return f"{self.charge}: {self.what}"


def judge(evidence: Evidence) -> list[Objection]:
    """Everything that is wrong."""
    case = _Case(evidence)
    return [*case.about_tasks(), *case.about_users(), *case.about_cuts(), *case.about_the_rest()]


def lost_without_a_start(evidence: Evidence) -> list[Record]:
    """Tasks that a cut is said to have ended before their agent could note anything."""
    return _Case(evidence).unnoted()


class _Case:
    """The evidence, sorted by task."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.starts: dict[str, list[Start]] = defaultdict(list)
        self.records: dict[str, list[Record]] = defaultdict(list)
        self.ends: dict[Process, End] = {end.process: end for end in evidence.ends}
        for start in sorted(evidence.starts, key=lambda start: start.at):
            self.starts[start.name].append(start)
        for record in evidence.records:
            self.records[record.name].append(record)
        self.requests: dict[str, list[Request]] = defaultdict(list)
        for request in evidence.requests:
            self.requests[request.name].append(request)

    # ------------------------------------------------------------------ tasks

    def about_tasks(self) -> Iterator[Objection]:
        """Each task by itself."""
        for task in self.evidence.entered.values():
            yield from self._about_presence(task)
            yield from self._about_starts(task)
            yield from self._about_cancels(task)
            for record in self.records[task.name][-1:]:
                yield from self._about_end(record)
                yield from self._about_promises(record)

    def _about_presence(self, task: Entered) -> Iterator[Objection]:
        found = self.records[task.name]
        if task.acknowledged and not found:
            yield Objection(Charge.STUCK if task.name in self.evidence.waiting else Charge.LOST, task.name)
        if len(found) > 1:
            yield Objection(Charge.DOUBLED, f"{task.name}: {', '.join(record.id for record in found)}")

    def _about_starts(self, task: Entered) -> Iterator[Objection]:
        """The first start is free; each further one needs a retry, or an earlier one that was lost by our doing."""
        starts = self.starts[task.name]
        further = [start for start in starts if not start.first]
        if not further:
            return
        allowed = len(self._asked(task.name, Kind.RETRY))
        if task.idempotent:
            # A start that died between its mark and its note is known by the mark alone.
            allowed += int(all(not start.first for start in starts))
            allowed += sum(self._is_excused(start.run, start) for start in starts)
        if len(further) > allowed or len({start.run for start in starts}) < len(starts):
            shown = "; ".join(_shown(start) for start in starts)
            yield Objection(Charge.RUN_TWICE, f"{task.name}: {shown}")

    def _asked(self, name: str, kind: Kind) -> list[Request]:
        return [request for request in self.requests[name] if request.kind is kind]

    # ------------------------------------------------------------------ requests

    def _about_cancels(self, task: Entered) -> Iterator[Objection]:
        """After an acknowledged cancel nothing begins, until somebody may have asked for a retry."""
        for cancel in self._asked(task.name, Kind.CANCEL):
            retries = [one for one in self._asked(task.name, Kind.RETRY) if one.answered >= cancel.asked]
            until = min((one.asked for one in retries), default=None)
            late = [
                start
                for start in self.starts[task.name]
                if cancel.said and start.at > cancel.answered and (until is None or start.at < until)
            ]
            if len({start.run for start in late}) > self._on_its_way(cancel):
                shown = "; ".join(_shown(start) for start in late)
                yield Objection(Charge.CANCELLED_RAN, f"{task.name}: {cancel.said} at {cancel.answered}; {shown}")

    def _on_its_way(self, cancel: Request) -> int:
        """How many attempts may still begin: none if it waited, or if its attempt had begun; else the one between."""
        before = [start for start in self.starts[cancel.name] if start.at <= cancel.answered]
        return int(cancel.said != "cancelled" and (not before or self._was_over(before[-1], cancel.answered)))

    def _was_over(self, start: Start, at: int) -> bool:
        """Whether an attempt may have been over by then: its agent was at its end, or we killed it."""
        end = self.ends.get(start.process)
        kills = [self.evidence.killed_at.get(process) for process in (start.process, start.parent)]
        return (end is not None and end.at <= at) or any(kill is not None and kill <= at for kill in kills)

    def _about_promises(self, record: Record) -> Iterator[Objection]:
        """What was acknowledged last was done."""
        cancels, retries = self._asked(record.name, Kind.CANCEL), self._asked(record.name, Kind.RETRY)
        for retry in retries:
            undone = any(cancel.answered >= retry.asked for cancel in cancels)
            if retry.said and not undone and record.attempt <= retry.attempt:
                yield Objection(Charge.FORGOTTEN, f"{record.name}: a retry of attempt {retry.attempt}")
        for cancel in cancels:
            undone = any(retry.answered >= cancel.asked for retry in retries)
            if cancel.said == "cancelled" and not undone and record.status != "cancelled":
                yield Objection(Charge.FORGOTTEN, f"{record.name}: a cancel, and now it is {record.status}")

    def _may_be_cancelled(self, name: str) -> bool:
        """Whether somebody asked for it, after the last retry that counts."""
        last = max((one.asked for one in self._asked(name, Kind.RETRY) if one.said), default=0)
        return any(cancel.answered >= last for cancel in self._asked(name, Kind.CANCEL))

    # ------------------------------------------------------------------ ends

    def _about_end(self, record: Record) -> Iterator[Objection]:
        run = Run(record.id, record.attempt)
        last = next((start for start in self.starts[record.name] if start.run == run), None)
        end = self.ends.get(last.process) if last else None
        story = f"{record.name} {record.id}: {record.status} ({record.reason}), {_story(last, end)}"
        match record.status:
            case "completed" if end is None:
                yield Objection(Charge.NOT_RUN, story)
            case "completed" if end is not None and end.code != 0:
                yield Objection(Charge.WRONG_END, story)
            case "failed" if not self._may_fail(record, last, end):
                yield Objection(Charge.WRONG_END if end else Charge.NEEDLESS, story)
            case "lost" if not self._is_excused(run, last):
                yield Objection(Charge.NEEDLESS, story)
            case "cancelled" if not self._may_be_cancelled(record.name):
                yield Objection(Charge.UNASKED, story)
            case "completed" | "failed" | "lost" | "cancelled":
                return
            case _:
                yield Objection(Charge.UNFINISHED, story)

    def _may_fail(self, record: Record, last: Start | None, end: End | None) -> bool:
        """It exited with an error, or we killed it; before its first note, its own word must do for that."""
        if last is None:
            return record.reason == "signal" and bool(self.evidence.killed)
        return last.process in self.evidence.killed or (end is not None and end.code != 0)

    def _is_excused(self, run: Run, start: Start | None) -> bool:
        """Whether we made sure that nobody could witness the end of this attempt."""
        known = {self.evidence.supervisors.get(run), start.parent if start else None}
        return bool(known & self.evidence.killed) or self._was_cut(start)

    def _was_cut(self, start: Start | None) -> bool:
        if start is None:
            return bool(self.evidence.cuts)  # whether there are too many of these is looked at for all of them
        cut = min((cut for cut in self.evidence.cuts if cut >= start.at), default=None)
        end = self.ends.get(start.process)
        return cut is not None and (end is None or cut < end.at + RECORDING)

    # ------------------------------------------------------------------ users

    def about_users(self) -> Iterator[Objection]:
        """No two runs of one user at once: seen by the agents in the act, and by the clock."""
        by_user: dict[str, list[Start]] = defaultdict(list)
        for start in sorted(self.evidence.starts, key=lambda start: start.at):
            by_user[start.user].append(start)
            if start.held_by:
                yield Objection(Charge.OVERLAP, f"{start.user}: {_shown(start)} found {start.held_by!r} alive")
        for user, starts in by_user.items():
            yield from self._about_times(user, starts)

    def _about_times(self, user: str, starts: Iterable[Start]) -> Iterator[Objection]:
        for before, after in pairwise(starts):
            end = self.ends.get(before.process)
            if end and end.at > after.at:
                yield Objection(Charge.OVERLAP, f"{user}: {_shown(before)} until {end.at}, and {_shown(after)}")

    # ------------------------------------------------------------------ power cuts

    def unnoted(self) -> list[Record]:
        """Tasks that are called lost by a cut, and of whose last attempt no agent noted a start."""
        runs = {start.run for start in self.evidence.starts}
        lost = [record for record in self.evidence.records if record.status == "lost"] if self.evidence.cuts else []
        killed = {run for run, process in self.evidence.supervisors.items() if process in self.evidence.killed}
        return [record for record in lost if Run(record.id, record.attempt) not in runs | killed]

    def about_cuts(self) -> Iterator[Objection]:
        """Each cut may have met as many runs before their first word as there are slots, and none of long ago."""
        found = self.unnoted()
        by_cut = Counter(self._cut_after(record) for record in found)
        for cut, count in by_cut.items():
            most = self.evidence.slots * (len(self.evidence.cuts) if cut is None else 1)
            if count > most:
                names = ", ".join(record.name for record in found if self._cut_after(record) == cut)
                yield Objection(Charge.UNNOTED, f"{count} at the cut at {cut}, with {most} slots: {names}")
        for record in found:
            cut = self._cut_after(record)
            if record.began is not None and (cut is None or cut > record.began + STARTING):
                yield Objection(Charge.NEEDLESS, f"{record.name} {record.id}: began at {record.began}, cut at {cut}")

    def _cut_after(self, record: Record) -> int | None:
        """The cut that ended it: the next after it began."""
        began = record.began
        return None if began is None else min((cut for cut in self.evidence.cuts if cut >= began), default=None)

    # ------------------------------------------------------------------ the rest

    def about_the_rest(self) -> Iterator[Objection]:
        """What belongs to no task."""
        evidence = self.evidence
        for record in evidence.records:
            if record.name not in evidence.entered:
                yield Objection(Charge.UNKNOWN, f"{record.id} {record.status} {record.name!r}")
        for charge, found in (
            (Charge.LEFT_BEHIND, evidence.alive),
            (Charge.REJECTED, evidence.rejected),
            (Charge.CRASHED, evidence.crashes),
        ):
            yield from (Objection(charge, one) for one in found)


def _shown(start: Start) -> str:
    return f"{start.name} ({start.run.task}.{start.run.attempt}, pid {start.process.pid}) at {start.at}"


def _story(last: Start | None, end: End | None) -> str:
    if last is None:
        return "never seen to start"
    return f"started as {_shown(last)}, " + (f"ended with {end.code} at {end.at}" if end else "no end")
