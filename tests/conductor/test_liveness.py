"""Taking a run back: what never started never will, and what did is never taken back."""

import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.conductor.runs import Place, ended, running, shell, state, text
from tests.support.patience import PATIENCE, eventually

from fairlead.conductor import liveness, rundir
from fairlead.conductor.launcher import ProcessLauncher
from fairlead.conductor.liveness import Void, void
from fairlead.conductor.meta import VOID, read_meta, write_meta


def test_a_run_that_nobody_took_up_is_void(place: Place) -> None:
    """A claimed run without a supervisor is taken back; all that was known of it is still there."""
    run_dir = place.make(shell("touch ran"))
    before = read_meta(run_dir)
    assert void(run_dir) is Void.NEVER_STARTED
    after = read_meta(run_dir)
    assert after.status == VOID
    after.status = before.status
    assert after == before


def test_void_is_void_however_often_it_is_asked(place: Place) -> None:
    """Two who take the same run back get the same answer."""
    run_dir = place.make(shell("true"))
    assert [void(run_dir) for _ in range(3)] == [Void.NEVER_STARTED] * 3


def test_a_supervisor_that_comes_late_leaves(place: Place) -> None:
    """It starts nothing, writes nothing, and says nothing."""
    run_dir = place.make(shell("touch ran"))
    void(run_dir)
    before = {name: text(run_dir, name) for name in os.listdir(run_dir)}
    assert place.supervise(run_dir).wait(PATIENCE) == 0
    assert {name: text(run_dir, name) for name in os.listdir(run_dir)} == before
    assert not (place.work / "ran").exists()


def test_a_run_that_was_never_made_is_void(place: Place) -> None:
    """Without a directory there is one afterwards, with a state that can be read, so that nobody can make it."""
    run_dir = rundir.active_dir(str(place.conductor), "project", "task-1", 1)
    assert void(run_dir) is Void.NEVER_STARTED
    meta = read_meta(run_dir)
    assert (meta.status, meta.id) == (VOID, "task-1.1")
    with pytest.raises(FileExistsError):
        rundir.create(run_dir, place.meta(), place.launch(shell("true")), "")
    assert place.supervise(run_dir).wait(PATIENCE) == 0
    assert not os.path.exists(f"{run_dir}/supervisor.err")


def test_a_run_whose_directory_was_removed_has_started_while_something_of_it_lives(place: Place) -> None:
    """The agent itself may have removed it: its processes bear the id of the lock."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"))
    meta = running(run_dir)
    shutil.rmtree(run_dir)
    assert void(run_dir, meta.lock_id) is Void.STARTED
    assert not os.path.exists(run_dir)
    assert void(run_dir, "another lock") is Void.NEVER_STARTED
    supervisor.kill()


@pytest.mark.parametrize("written", [None, "", '{"id": "tas'], ids=["nothing", "an empty file", "half a file"])
def test_a_run_that_is_being_made_is_void(place: Place, written: str | None) -> None:
    """Whoever makes it is at most on its way to write the state, and finds that it came too late."""
    run_dir = rundir.active_dir(str(place.conductor), "project", "task-1", 1)
    rundir.make(run_dir)
    if written is not None:
        Path(run_dir, "meta.json").write_text(written)
    assert void(run_dir) is Void.NEVER_STARTED
    with pytest.raises(FileExistsError):
        rundir._put(run_dir, "meta.json", b"{}")


def test_a_run_with_a_supervisor_is_inhabited(place: Place) -> None:
    """As long as its supervisor lives, a run is not taken back."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"))
    running(run_dir)
    assert void(run_dir) is Void.INHABITED
    assert read_meta(run_dir).status == "running"
    supervisor.terminate()
    ended(run_dir, supervisor)


def test_an_ended_run_has_started(place: Place) -> None:
    """A run with an end is not taken back, and its end stays."""
    run_dir, supervisor = place.begin(shell("exit 3"))
    ended(run_dir, supervisor)
    assert void(run_dir) is Void.STARTED
    assert read_meta(run_dir).exit_code == 3


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff"])
def test_a_run_with_logs_and_no_state_has_started(place: Place, content: bytes) -> None:
    """If the state is lost and the logs are there, an agent may have run."""
    run_dir, supervisor = place.begin(shell("true"))
    ended(run_dir, supervisor)
    Path(run_dir, "meta.json").write_bytes(content)
    assert void(run_dir) is Void.STARTED
    assert Path(run_dir, "meta.json").read_bytes() == content


def test_a_run_that_says_running_has_started(place: Place) -> None:
    """From `running` on, the agent may have run, even if no log says so."""
    run_dir = place.make(shell("true"))
    meta = read_meta(run_dir)
    meta.status = "running"
    write_meta(run_dir, meta, synced=False)
    assert void(run_dir) is Void.STARTED


@pytest.mark.parametrize("kind", ["file", "link"])
def test_something_else_in_a_runs_place_means_that_it_has_started(place: Place, kind: str) -> None:
    """Only an agent puts something there that is no directory; what cannot be a place at all is told."""
    run_dir = place.make(shell("true"))
    shutil.rmtree(run_dir)
    Path(run_dir).touch() if kind == "file" else os.symlink("/tmp", run_dir)  # noqa: S108 - never followed
    assert void(run_dir) is Void.STARTED
    shutil.rmtree(os.path.dirname(run_dir))
    Path(run_dir).parent.touch()
    with pytest.raises(NotADirectoryError):
        void(run_dir)
    Path(run_dir).parent.unlink()


def test_a_supervisor_is_one_of_ours(place: Place) -> None:
    """It is found by its name; somebody else who bears that name is not one, nor is who has gone."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"))
    lock_id = running(run_dir).lock_id
    found = liveness.find_supervisor(lock_id)
    assert found
    assert found.pid == supervisor.pid
    assert not liveness._is_ours(os.getpid())
    assert not liveness._is_ours(0)
    assert liveness.find_supervisor("another") is None


def test_taking_back_and_putting_away_may_meet(place: Place) -> None:
    """Two who take back and put away the same runs at once disturb neither each other nor the outcome."""
    runs = [place.make(shell("true")) for _ in range(200)]
    answers: list[Void] = []

    def take_back() -> None:
        for run_dir in runs:
            answers.append(void(run_dir))
            rundir.discard(run_dir)

    pair = [threading.Thread(target=take_back) for _ in range(2)]
    for one in pair:
        one.start()
    for one in pair:
        one.join()
    assert len(answers) == 400
    assert Void.STARTED not in answers
    assert answers.count(Void.NEVER_STARTED) >= 200
    assert list(rundir.all_active(str(place.conductor))) == []


def over(run_dir: str) -> bool:
    """Whether the end of the run is written, or that it never started."""
    return (meta := state(run_dir)) is not None and (meta.ended or meta.status == VOID)


def is_inhabited(run_dir: str) -> bool:
    """Whether a supervisor is in there; asking by the lock itself would keep it out."""
    return f":{os.stat(run_dir).st_ino} " in Path("/proc/locks").read_text(encoding="ascii")


#: What can be seen of a run on its way, from before its supervisor is there to after its end.
STAGES: dict[str, Callable[[str], bool]] = {
    "launched": lambda _: True,
    "locked": lambda run_dir: is_inhabited(run_dir) or over(run_dir),
    "being announced": lambda run_dir: any(name.startswith(".meta") for name in os.listdir(run_dir)) or over(run_dir),
    "announced": lambda run_dir: (meta := state(run_dir)) is not None and meta.status != "claimed",
    "with logs": lambda run_dir: os.path.exists(f"{run_dir}/stdout.log"),
    "over": over,
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_is_never_both_taken_back_and_started(place: Place, stage: str) -> None:
    """Taking back and supervising race for the same directory, many times: one of them wins, whole."""
    chance = random.Random(stage)
    launcher = ProcessLauncher(str(place.path / "errors"), str(place.bells))
    answers = set()
    for number in range(60):
        mark = place.work / f"ran-{number}"
        run_dir = place.make(("/bin/mkdir", str(mark)))
        for _ in range(chance.choice((1, 1, 2))):
            launcher.launch(run_dir)
        spin(partial(STAGES[stage], run_dir), chance.randrange(50))
        answer = void(run_dir)
        launcher.launch(run_dir)
        eventually(partial(over, run_dir), "neither taken back nor ended")
        assert mark.exists() == (answer is not Void.NEVER_STARTED), answer
        answers.add(answer)
    launcher.close()
    assert not list(place.conductor.glob("*/*/*/supervisor.err"))
    assert (Void.NEVER_STARTED in answers) >= (stage == "launched")
    assert (Void.NEVER_STARTED not in answers) >= (stage in {"announced", "with logs", "over"})


def test_of_many_supervisors_one_starts(place: Place) -> None:
    """Several supervisors that come for a run at the same time start its agent once."""
    launcher = ProcessLauncher(str(place.path / "errors"), str(place.bells))
    runs = [place.make(shell("echo once")) for _ in range(30)]
    for run_dir in runs:
        for _ in range(4):
            launcher.launch(run_dir)
    for run_dir in runs:
        eventually(partial(over, run_dir), "it does not end")
    launcher.close()
    assert [text(run_dir, "stdout.log") for run_dir in runs] == ["once\n"] * 30


def spin(look: Callable[[], bool], more: int) -> None:
    """Look without a pause until it is true, then so many times more."""
    deadline = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < deadline
    for _ in range(more):
        look()


def test_a_directory_that_is_cleared_away_meanwhile_is_somebody_elses(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever took it back himself has put it away between our look and our lock."""
    run_dir = place.make(shell("true"))
    monkeypatch.setattr(rundir, "make", shutil.rmtree)
    assert void(run_dir) is Void.INHABITED
