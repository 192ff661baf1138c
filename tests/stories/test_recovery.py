"""After the worst: both services are killed under full load, and one user's flood does not reach another."""

import signal
import time
from pathlib import Path

from tests.proof.evidence import Process
from tests.proof.processes import identify, is_alive
from tests.support.instance import NO_POLLS, Home
from tests.support.patience import eventually

from fairlead.base.ids import new_id
from fairlead.queue.states import Status
from fairlead.queue.store import Submission

AGENTS = 20


def waits_for(name: str) -> str:
    """A run that lasts until a file is there."""
    return f"until [ -e {name} ]; do sleep 0.1; done"


def test_twenty_agents_outlive_both_services(home: Home) -> None:
    """Known again within five seconds, none killed, none doubled; who ended meanwhile leaves his user free at once."""
    home.configure(slots={"max": AGENTS})
    daemon, watchdog = home.up()
    users = [f"user{number:02}" for number in range(AGENTS)]
    documents = [home.document(home.counted(waits_for(user)), user=user) for user in users]
    tasks = home.submit_all(documents[: AGENTS // 2])
    for one in tasks:
        home.wait_status(one, Status.RUNNING)
    home.stop(watchdog, number=signal.SIGKILL)
    tasks += home.submit_all(documents[AGENTS // 2 :])
    supervisors = [home.supervisor_of(one) for one in tasks]
    home.stop(daemon, number=signal.SIGKILL)
    # Of the second half nobody has noted yet that they started.
    assert [home.task(one).status for one in tasks] == [Status.RUNNING] * 10 + [Status.CLAIMED] * 10
    Path(home.path, users[0]).touch()
    eventually(lambda: home.meta(tasks[0]).ended, "one ends while nobody looks")
    following = home.submit(home.counted(), user=users[0])
    home.up()
    eventually(
        lambda: _all_known(home, tasks[1:], supervisors[1:]) and home.is_over(tasks[0], following),
        "all are known again, and the free user's next task is done",
        5.0,
    )
    assert [home.task(one).attempt for one in tasks] == [1] * AGENTS
    assert [is_alive(one) for one in supervisors[1:]] == [True] * (AGENTS - 1)
    for user in users:
        Path(home.path, user).touch()
    ended = home.wait_over_for_good(*tasks, following)
    assert {task.status for task in ended} == {Status.COMPLETED}
    assert home.starts() == sorted([*tasks, following])


def _all_known(home: Home, tasks: list[str], supervisors: list[Process]) -> bool:
    """Whether the store says of each that it runs, and that its supervisor holds the lock."""
    holders = {lock.task_id: identify(lock.holder.pid) for lock in home.store.locks()}
    return all(
        home.task(one).status is Status.RUNNING and holders.get(one) == supervisor
        for one, supervisor in zip(tasks, supervisors, strict=True)
    )


def test_ten_thousand_tasks_of_one_user_do_not_delay_another(home: Home) -> None:
    """With one slot, the other's first task starts when the slot is free next: at most one of the flood is before."""
    home.configure(slots={"max": 1}, **NO_POLLS)
    home.up()
    flood = home.submit("sleep 0.2", user="greedy")
    spec = home.task(flood).spec
    now = int(time.time() * 1000)
    more = [Submission(id=new_id(now), spec=spec, created_at=now) for _ in range(10_000)]
    home.store.add(more, now=now, warn_at=10**9, refuse_at=10**9)
    home.ring("daemon")
    home.wait_over(flood)
    modest = home.submit(user="modest")
    submitted = home.task(modest).created_at
    [ended] = home.wait_over(modest)
    assert ended.started_at is not None
    claims = [event for event in home.store.events(limit=100_000) if event.event == "claimed"]
    between = [event for event in claims if event.user == "greedy" and submitted < event.at <= ended.started_at]
    assert len(between) <= 1
    before = [task for task in home.tasks() if task.spec.user == "greedy" and task.finished_at]
    freed = max(task.finished_at or 0 for task in before if (task.finished_at or 0) <= ended.started_at)
    assert ended.started_at - max(freed, submitted) < 5_000
