"""Commands and a rebuild at the same time: what a command says yes to is in the store that stays."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.cli.running import Run, process
from tests.support.instance import Home
from tests.support.patience import PATIENCE, eventually

from fairlead.base.logs import open_log
from fairlead.queue.instance import Presence
from fairlead.queue.states import Status
from fairlead.watchdog.rebuild import Rebuild


class SlowRebuild(Rebuild):
    """One that has read the files, and waits before it puts the new store in its place."""

    def __init__(self, home: Home) -> None:
        super().__init__(home.paths, home.environ, open_log(home.paths.log_file, "rebuild"))
        self.has_read, self.may_go_on = threading.Event(), threading.Event()

    def _put_in_place(self) -> None:
        self.has_read.set()
        assert self.may_go_on.wait(PATIENCE)
        super()._put_in_place()


@contextmanager
def rebuilding(home: Home) -> Iterator[SlowRebuild]:
    """A rebuild that is under way."""
    home.clear_opened()
    slow = SlowRebuild(home)
    thread = threading.Thread(target=slow.run, kwargs={"replace": True})
    thread.start()
    try:
        assert slow.has_read.wait(PATIENCE)
        yield slow
    finally:
        slow.may_go_on.set()
        thread.join()


def waits_for_others(pid: int) -> bool:
    """Whether a process waits for a flock, as the kernel tells."""
    with open("/proc/locks", encoding="ascii") as locks:
        return any(line.split()[1:3] == ["->", "FLOCK"] and line.split()[5] == str(pid) for line in locks)


def test_a_change_during_a_rebuild_is_made_in_the_new_store(run: Run) -> None:
    """`cancel` waits for the end of the rebuild, and the task is cancelled afterwards."""
    task_id = run.home.submit()
    with rebuilding(run.home) as slow, process(run.home, "cancel", task_id) as one:
        eventually(lambda: waits_for_others(one.pid) or one.poll() is not None, "`cancel` does not wait")
        assert one.poll() is None
        slow.may_go_on.set()
        assert one.wait(PATIENCE) == 0
    assert run.home.task(task_id).status is Status.CANCELLED


@pytest.mark.parametrize(
    "words",
    [("retry", "ID"), ("requeue", "ID"), ("change", "ID", "--title", "x"), ("pause",), ("resume",), ("drain",)],
    ids=lambda words: str(words[0]),
)
def test_whoever_changes_something_waits_while_the_store_is_replaced(run: Run, words: tuple[str, ...]) -> None:
    """What it said yes to would be lost with the old store."""
    task_id = run.home.submit()
    run("cancel", task_id)
    if words[0] == "change":
        run("retry", task_id)
    run.home.clear_opened()
    replacing = Presence(run.home.paths)
    replacing.alone()
    with process(run.home, *(task_id if word == "ID" else word for word in words)) as one:
        eventually(lambda: waits_for_others(one.pid) or one.poll() is not None, "it does not wait")
        assert one.poll() is None
        replacing.release()
        assert one.wait(PATIENCE) == 0


def test_whoever_only_reads_does_not_wait(run: Run) -> None:
    """`status` and `list` answer from the store that is there."""
    run.home.submit()
    run.home.clear_opened()
    replacing = Presence(run.home.paths)
    replacing.alone()
    for command in ("status", "list", "locks"):
        run(command)
    replacing.release()


def test_where_nothing_is_there_is_nothing_to_wait_for(run: Run) -> None:
    """A change in an instance that was never made is refused as one."""
    assert "there is no queue at" in run.refusal("pause", code=6)
