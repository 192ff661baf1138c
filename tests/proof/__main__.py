"""`python -m tests.proof [kills|cuts|services]`: the long proofs, with figures; exit code 1 if one does not stand."""

import argparse
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterable

import pytest
from tests.proof import cuts, kills, services
from tests.proof.evidence import Evidence, Kind
from tests.proof.judge import Charge, Objection, lost_without_a_start
from tests.proof.waiting import boottime

#: More objections than this of one kind are counted, not shown.
_SHOWN = 20


def main() -> int:
    """Run what was asked for."""
    options = _options()
    # A proof that is stopped from outside must still take its processes and its disk down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = random.randrange(10**6) if options.seed is None else options.seed
    place = options.keep or tempfile.mkdtemp(prefix="fairlead-proof-")
    _say(f"seed {seed}: --seed {seed} makes the same choices again; evidence in {place}")
    passed = True
    if options.proof in ("kills", "all"):
        passed = _kills(options, seed, os.path.join(place, "kills")) and passed
    if options.proof in ("cuts", "all"):
        passed = _cuts(options, seed, os.path.join(place, "cuts")) and passed
    if options.proof in ("services", "all"):
        passed = _services(options, seed) and passed
    if passed and not options.keep:
        os.rmdir(place)
    return 0 if passed else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("proof", nargs="?", default="all", choices=["kills", "cuts", "services", "all"])
    parser.add_argument("--kills", type=int, default=1000, help="how many processes to kill")
    parser.add_argument("--cuts", type=int, default=200, help="how often to cut the power")
    parser.add_argument("--control", type=int, default=5, help="cuts without working syncs, which must lose something")
    parser.add_argument("--rounds", type=int, default=100, help="how often to restart, and kill, each service")
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=30.0, help="stop killing after this long")
    parser.add_argument("--pause", type=float, default=0.35, help="seconds between two kills, on the average")
    parser.add_argument("--seed", type=int, help="repeat these choices")
    parser.add_argument("--keep", metavar="DIRECTORY", help="where to keep the evidence")
    return parser.parse_args()


def _kills(options: argparse.Namespace, seed: int, place: str) -> bool:
    settings = kills.Settings(
        kills=options.kills,
        users=options.users,
        slots=options.slots,
        minutes=options.minutes,
        seed=seed,
        pause=options.pause,
    )
    outcome = kills.prove_kills(place, settings, _say)
    _say("\n".join(["", "random kills", *kills_table(outcome), ""]))
    _explain(outcome.objections, place)
    return outcome.passed


def kills_table(outcome: kills.Outcome) -> list[str]:
    """The figures of the first proof."""
    by_role = ", ".join(f"{role} {count}" for role, count in sorted(outcome.killed.items()))
    rate = f"{outcome.killed.total() / outcome.killing:.2f} per second" if outcome.killing else "none"
    return [
        _row("killed", f"{outcome.killed.total()} of {outcome.settings.kills} in {outcome.killing:.0f} s: {rate}"),
        _row("", by_role),
        _row("services started", outcome.service_starts),
        _row("submits refused", len(outcome.refusals)),
        *_requests(outcome.evidence),
        *_tasks(outcome.evidence),
        _row("queue emptied", f"after {outcome.draining:.0f} s" if outcome.drained else "no"),
        *_charges(outcome.objections),
        _row("", "STANDS" if outcome.passed else "DOES NOT STAND"),
    ]


def _cuts(options: argparse.Namespace, seed: int, place: str) -> bool:
    if reason := cuts.why_not():
        _say(f"power cuts: skipped, {reason}")
        return True
    settings = cuts.Settings(
        cuts=options.cuts, control=options.control, users=options.users, slots=options.slots, seed=seed
    )
    outcome = cuts.prove_cuts(place, settings, _say)
    _say("\n".join(["", "power cuts", *cuts_table(outcome), ""]))
    _explain(outcome.objections, place)
    return outcome.passed


def cuts_table(outcome: cuts.Outcome) -> list[str]:
    """The figures of the second proof."""
    how = ", ".join(f"{cut.name.lower()} {count}" for cut, count in sorted(outcome.cuts.items()))
    control = f"none: {outcome.no_control}" if outcome.control is None else "{1} of {0} lost".format(*outcome.control)
    return [
        _row("cuts", f"{outcome.cuts.total()} in {outcome.cutting:.0f} s ({how})"),
        _row("without syncs", control + (": THE PROOF IS BLIND" if outcome.blind else "")),
        _row("gone after a cut", len(outcome.gone)),
        _row("lost before their agent spoke", _unnoted(outcome)),
        *_tasks(outcome.evidence),
        _row("queue emptied", f"after {outcome.draining:.0f} s"),
        *_charges(outcome.objections),
        _row("", "STANDS" if outcome.passed else "DOES NOT STAND"),
    ]


def _services(options: argparse.Namespace, seed: int) -> bool:
    try:
        outcome = services.prove_services(services.Settings(options.rounds, seed), _say)
    except pytest.skip.Exception as reason:
        _say(f"restarted services: skipped, {reason}")
        return True
    _say("\n".join(["", "restarted and killed services", *services_table(outcome), ""]))
    return outcome.passed


def services_table(outcome: services.Outcome) -> list[str]:
    """The figures of the third proof."""
    longest, what = outcome.slowest[0]
    return [
        _row("restarted and killed", f"{outcome.done.total()} times: {min(outcome.done.values())} of each kind"),
        _row("at work again, at the latest", f"after {longest:.2f} s ({what}); {services.SOON:g} s are allowed"),
        _row("tasks", f"{outcome.tasks} dropped, {len(outcome.begun)} begun, {len(outcome.ended)} came to their end"),
        _row("archived", ", ".join(f"{status} {count}" for status, count in sorted(outcome.statuses.items()))),
        _row("agents killed", len(outcome.killed)),
        _row("agents doubled", len(outcome.doubled)),
        _row("left behind", len(outcome.left)),
        _row("", "STANDS" if outcome.passed else "DOES NOT STAND"),
    ]


def _unnoted(outcome: cuts.Outcome) -> str:
    found, most = len(lost_without_a_start(outcome.evidence)), outcome.settings.slots * outcome.cuts.total()
    return f"{found}, of at most {most}: {outcome.settings.slots} at each cut"


def _requests(evidence: Evidence) -> Iterable[str]:
    for kind in Kind:
        made = [request for request in evidence.requests if request.kind is kind]
        heard = [request for request in made if request.said]
        at_once = sum(request.said == "cancelled" for request in heard)
        how = f": {at_once} waited, {len(heard) - at_once} ran" if kind is Kind.CANCEL else ""
        yield _row(f"asked to {kind}", f"{len(made)}, {len(heard)} acknowledged{how}")


def _tasks(evidence: Evidence) -> Iterable[str]:
    entered = evidence.entered.values()
    yield _row("tasks", f"{len(entered)} entered, {sum(task.acknowledged for task in entered)} acknowledged")
    yield _row("agents", f"{len(evidence.starts)} started, {len(evidence.ends)} came to their end")
    statuses = sorted({record.status for record in evidence.records})
    count = {status: sum(record.status == status for record in evidence.records) for status in statuses}
    yield _row("archived", ", ".join(f"{status} {count[status]}" for status in statuses))


def _charges(objections: list[Objection]) -> Iterable[str]:
    """The three promises by name, whatever they came to, and everything else that was found."""
    for charge in Charge:
        count = sum(objection.charge is charge for objection in objections)
        if count or charge in (Charge.LOST, Charge.RUN_TWICE, Charge.OVERLAP):
            yield _row(charge, count)


def _row(name: str, value: object) -> str:
    return f"  {name:<52}{value}"


def _explain(objections: list[Objection], place: str) -> None:
    for charge in Charge:
        found = [str(objection) for objection in objections if objection.charge is charge]
        for line in found[:_SHOWN]:
            _say(line)
        if len(found) > _SHOWN:
            _say(f"{charge}: and {len(found) - _SHOWN} more")
    if objections:
        _say(f"the evidence is kept in {place}")


def _say(text: str) -> None:
    sys.stdout.write(f"[{boottime():9.1f}] {text}\n" if text and not text.startswith("\n") else f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
