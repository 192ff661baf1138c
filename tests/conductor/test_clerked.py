"""The drop-off of another user's agent, reached by clerks: real ones, of the tests' own user."""

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.conductor.runs import Place
from tests.support.porters import own_clerks

from fairlead.base.errors import is_machine_trouble
from fairlead.conductor import clerked
from fairlead.conductor.clerked import ClerkedDropOff
from fairlead.conductor.porter import Porter
from fairlead.conductor.results import UnusableResultError

SH = ("sh", "-c", "true")


@pytest.fixture
def porter(tmp_path: Path) -> Iterator[Porter]:
    """A way to clerks."""
    with own_clerks(tmp_path) as porter, closing(porter):
        yield porter


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between two tries."""
    monkeypatch.setattr(clerked, "_PAUSE", 0.0)


class Run:
    """A run whose agent is somebody else, and what that one does in his drop-off."""

    def __init__(self, place: Place, porter: Porter, user: str = "ann", **changes: Any) -> None:  # noqa: ANN401
        command = changes.pop("command", SH)
        run_dir = place.make(command, prompt="do it", **changes)
        self.launch = place.launch(command, **changes)
        self.place = place.path / "spool" / ".runs" / os.path.basename(run_dir)
        self.drop_off = ClerkedDropOff(porter, user, run_dir, self.launch)


def test_a_drop_off_has_what_the_agent_reads(place: Place, porter: Porter) -> None:
    """Its prompt and its task; the program is found; without a prompt on standard input there is nothing on it."""
    run = Run(place, porter, task={"title": "x"})
    launch, stdin = run.drop_off.prepare()
    assert (launch.argv, os.readlink(f"/proc/self/fd/{stdin}")) == (("/usr/bin/sh", *SH[1:]), "/dev/null")
    assert (run.place / "prompt.txt").read_text() == "do it"
    assert (run.place / "task.json").read_text() == '{"task":{"title":"x"}}'
    os.close(stdin)


def test_standard_input_is_the_prompt_as_its_user_reads_it(place: Place, porter: Porter) -> None:
    """Open for reading; its name is of no importance but for the last part."""
    _, stdin = Run(place, porter, stdin="/elsewhere/prompt.txt").drop_off.prepare()
    assert os.read(stdin, 100) == b"do it"
    os.close(stdin)


def test_what_was_left_is_collected_once(place: Place, porter: Porter) -> None:
    """Progress while it runs, then all of it; afterwards nobody looks again, whatever may lie there."""
    run = Run(place, porter, artifacts=("*.txt",))
    os.close(run.drop_off.prepare()[1])
    assert run.drop_off.progress() == ""
    (run.place / "progress").write_text("one\ntwo\n")
    assert run.drop_off.progress() == "two"
    (run.place / "result.json").write_text('{"n": 1}')
    (place.work / "a.txt").touch()
    assert run.drop_off.artifacts() == ["a.txt"]
    (run.place / "result.json").write_text("forged")
    (run.place / "progress").write_text("forged")
    assert run.drop_off.result() == {"n": 1}
    assert run.drop_off.progress() == "two"
    run.drop_off.clear()
    assert not run.place.exists()


@pytest.mark.parametrize(
    ("content", "why"), [("{", "truncated"), ("[" * 100 + "]" * 100, "nested"), ("x" * 99, "99 bytes")]
)
def test_a_result_that_cannot_be_used_is_told(place: Place, porter: Porter, content: str, why: str) -> None:
    """As with any agent."""
    run = Run(place, porter, result_bytes=98 if "x" in content else 1 << 20)
    os.close(run.drop_off.prepare()[1])
    (run.place / "result.json").write_text(content)
    with pytest.raises(UnusableResultError, match=why):
        run.drop_off.result()


def test_without_a_result_there_is_none(place: Place, porter: Porter) -> None:
    """Which is no error of anybody's."""
    run = Run(place, porter)
    os.close(run.drop_off.prepare()[1])
    with pytest.raises(FileNotFoundError):
        run.drop_off.result()


def test_what_a_clerk_finds_wrong_is_an_error_of_the_task(place: Place, porter: Porter) -> None:
    """No directory to stand in, no program: in words, and not to be tried again."""
    with pytest.raises(FileNotFoundError) as no_place:
        Run(place, porter, cwd="/nowhere").drop_off.prepare()
    assert no_place.value.filename == "/nowhere"
    with pytest.raises(ValueError, match="no program 'no-such'"):
        Run(place, porter, command=("no-such",)).drop_off.prepare()


def test_orders_that_are_too_long_are_an_error_of_the_task(place: Place, porter: Porter) -> None:
    """Else it would be tried for ever."""
    run = Run(place, porter, task={"prompt": "x" * (8 << 20)})
    with pytest.raises(PermissionError, match="too long to be handed on") as raised:
        run.drop_off.prepare()
    assert not is_machine_trouble(raised.value)


def test_without_a_porter_it_is_tried_again_later(place: Place, tmp_path: Path) -> None:
    """No task fails for that: the machine cannot start anything now."""
    run = Run(place, Porter(str(tmp_path / "nobody.sock")))
    with pytest.raises(OSError, match="does not answer") as raised:
        run.drop_off.prepare()
    assert is_machine_trouble(raised.value)
    assert raised.value.errno == errno.EAGAIN


def test_without_a_clerk_it_is_his_users_affair(place: Place, porter: Porter) -> None:
    """Who may stop or end his own: others must not wait for that, so it is no trouble of the machine's."""
    run = Run(place, porter, user="stranger")
    with pytest.raises(TimeoutError, match="stranger may not use this queue") as raised:
        run.drop_off.prepare()
    assert not is_machine_trouble(raised.value)


@pytest.mark.parametrize("user", ["stranger", "ann"])
def test_a_run_ends_without_clerks_too(place: Place, porter: Porter, tmp_path: Path, user: str) -> None:
    """Nobody can look: it is said why there is no result, and nothing goes wrong with that."""
    way = porter if user == "stranger" else Porter(str(tmp_path / "nobody.sock"))
    drop_off = Run(place, way, user=user).drop_off
    assert drop_off.progress() == ""
    assert drop_off.artifacts() == []
    with pytest.raises(UnusableResultError, match="it could not be collected"):
        drop_off.result()
    drop_off.clear()


def test_a_result_outlasts_a_porter_who_is_started_anew(
    place: Place, porter: Porter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for again when he is back: an agent that has done its work is not to suffer for it."""
    run = Run(place, porter)
    os.close(run.drop_off.prepare()[1])
    (run.place / "result.json").write_text("1")
    porter.close()
    (tmp_path / "porter.sock").rename(tmp_path / "away.sock")
    pauses: list[float] = []

    def come_back(pause: float) -> None:
        pauses.append(pause)
        (tmp_path / "away.sock").rename(tmp_path / "porter.sock")

    monkeypatch.setattr("fairlead.conductor.clerked.time.sleep", come_back)
    assert run.drop_off.result() == 1
    assert len(pauses) == 1


def test_nothing_stays_open_of_a_run(place: Place, porter: Porter) -> None:
    """However often its supervisor asks."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run = Run(place, porter, stdin="prompt.txt")
        os.close(run.drop_off.prepare()[1])
        run.drop_off.progress()
        run.drop_off.artifacts()
        run.drop_off.clear()
    assert len(os.listdir("/proc/self/fd")) == before
