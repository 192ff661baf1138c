"""events: what happened, for people and for programs."""

import json
import re

import pytest
from tests.cli.running import Run, process, shown, wait_waiting

from fairlead.base.clock import SystemClock
from fairlead.cli.eventlines import words
from fairlead.queue.states import Status
from fairlead.queue.task import Event

LINE = re.compile(r"(\d\d:\d\d:\d\d)  (\S+) +(\S+(?: \S+)?) {2,}(.*)")


def parsed(line: str) -> tuple[str, str, str]:
    """User, what, and the rest of a line."""
    match = LINE.fullmatch(line)
    assert match, line
    return match[2], match[3], match[4]


def test_the_life_of_a_task(run: Run) -> None:
    """Time, user, what happened, title and id; an end has its error and how long it took."""
    good, bad = run.played(title="Good"), run.played("exit 3", user="bob", title="Bad", priority="low")
    lines = [parsed(line) for line in run.lines("events")]
    assert [line[:2] for line in lines[:4]] == [("ann", what) for what in ("queued", "claimed", "started", "completed")]
    assert lines[0][2] == f"Good  {good}"
    assert re.fullmatch(rf"Good \(\S+s\)  {good}", lines[3][2])
    assert lines[4] == ("bob", "queued", f"Bad: low priority  {bad}")
    assert re.fullmatch(rf"Bad: the agent ended with exit code 3 \(\S+s\)  {bad}", lines[-1][2])


def test_events_for_programs_are_lines(run: Run) -> None:
    """One object per line, with everything that is known of it."""
    task_id = run.played()
    first, *_, last = [json.loads(line) for line in run("events", "--json").out.splitlines()]
    assert (first["seq"], first["event"], first["task_id"], first["user"]) == (1, "queued", task_id, "ann")
    assert first["timestamp"].endswith("+00:00")
    assert (last["event"], last["status"], last["reason"]) == ("completed", "completed", "exit")


def test_the_last_ones(run: Run) -> None:
    """--last says how many; of a task all are told unless it says less."""
    task_id = run.played()
    run.played()
    assert len(run.lines("events")) == 8
    assert [parsed(line)[1] for line in run.lines("events", "--last", "2")] == ["started", "completed"]
    assert run.lines("events", "--last", "0") == []
    assert len(run.lines("events", "--task", task_id)) == 4
    assert [parsed(line)[1] for line in run.lines("events", "--task", task_id, "--last", "1")] == ["completed"]
    assert run.lines("events", "--task", task_id, "--last", "0") == []
    assert len(run.lines("events", "--task", task_id, "--last", "9")) == 4
    assert "argument --last: '-1'" in run.refusal("events", "--last=-1", code=2)
    assert "there is no task nosuch" in run.refusal("events", "--task", "nosuch", code=4)


def test_following(run: Run) -> None:
    """-f begins with what was, and goes on with what happens, as it happens."""
    task_id = run.home.submit()
    run.home.open()
    with process(run.home, "events", "-f", "--task", task_id) as one:
        wait_waiting(run.home, "events", one)
        assert one.stdout
        assert parsed(one.stdout.readline().rstrip())[1] == "queued"
        run.home.submit(user="bob")
        run("cancel", task_id)
        assert parsed(one.stdout.readline().rstrip())[1] == "cancelled"


def test_a_terminal_gets_colours(run: Run) -> None:
    """Ends are painted."""
    run.played()
    assert "\x1b[32mcompleted       \x1b[0m" in shown(run.home, "events")


@pytest.mark.parametrize(
    ("event", "detail", "said"),
    [
        ("queued", {"priority": 2, "source": "a.yaml"}, ""),
        ("queued", {"priority": 0}, "critical priority"),
        ("claimed", {"attempt": 1, "token": 7, "pid": 3}, ""),
        ("claimed", {"attempt": 2}, "attempt 2"),
        ("changed", {"priority": 2, "run_at": None}, "medium priority"),
        ("changed", {"priority": 1, "run_at": 0}, "high priority, not before 1970-01-01T00:00:00Z"),
        ("changed", {"priority": 2, "title": "new"}, "now called new, medium priority"),
        ("retried", {"by": "ann", "after": "failed"}, "by ann after it had failed"),
        ("retried", {"by": "ann", "after": "lost"}, "by ann after it was lost"),
        ("paused", {"scope": "all", "by": "ann", "reason": "lunch"}, "all by ann: lunch"),
        ("paused", {"scope": "all", "by": "ann", "reason": ""}, "all by ann"),
        ("requeued", {"reason": "it did not start in time", "evidence": {}}, "it did not start in time"),
        ("failed", {"reason": "exit", "error": "it failed", "held": 2.0}, "it failed (2s)"),
        ("completed", {"reason": "exit", "error": "", "held": 2.0}, "(2s)"),
        ("cancelled", {"reason": "cancelled", "error": "", "held": 0.0}, "cancelled (0ms)"),
        ("lock_released", {"lock": "user:ann", "why": "enough"}, "user:ann: enough"),
        ("refused", {"what": "renew", "lock_id": "x_1"}, "renew"),
        ("rejected", {"file": "a.yaml", "error": "a.yaml: 1 problem"}, "a.yaml: 1 problem"),
        ("rejected", {"file": "a.yaml", "error": "it is a link"}, "a.yaml: it is a link"),
        ("rejected", {"file": "\x1b", "error": "\x1b no"}, "\\x1b no"),
        ("rejected", {"file": "a", "error": "a: 1 problem\n  line 1: no"}, "a: line 1: no"),
        ("rejected", {"file": "a", "error": "a: 2 problems\n  x\n  y"}, "a: x (and 1 more, see a.error)"),
    ],
    ids=str,
)
def test_what_is_said_of_an_event(event: str, detail: dict[str, object], said: str) -> None:
    """Words for people; what machines need is left to JSON, and nothing can command a terminal."""
    assert words(event, detail) == said


def test_events_without_a_task_or_a_user(run: Run) -> None:
    """A pause is nobody's; a task that was forgotten has no title any more."""
    store = run.home.open().store
    store.note(Event(at=0, event="paused", detail={"scope": "all"}))
    store.note(Event(at=0, event="started", status=Status.RUNNING, task_id="gone", user="ann"))
    assert run.lines("events") == [
        "1970-01-01 00:00:00  -           paused            all",
        "1970-01-01 00:00:00  ann         started             gone",
    ]


def test_what_did_not_happen_today_has_its_date(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time alone is one of today."""
    run.home.submit()
    [today] = run.lines("events")
    tomorrow = SystemClock().wall_ms() + 86_400_000
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _: tomorrow)
    [line] = run.lines("events")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d " + re.escape(today), line)
