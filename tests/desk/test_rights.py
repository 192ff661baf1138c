"""Who may do what at the desk: every operation, for everybody who may come."""

from collections.abc import Callable

import pytest
from tests.desk.people import PEOPLE, System

from fairlead.base.errors import FairleadError, UsageError
from fairlead.config.schema import Config, Users
from fairlead.desk.desk import Desk
from fairlead.desk.submitting import File
from fairlead.desk.views import PUBLIC
from fairlead.queue.locks import this_holder
from fairlead.queue.rights import Caller, ForbiddenError, caller_of, master
from fairlead.queue.task import Event

READERS = {"owner", "former owner", "member", "admin"}
STOPPERS = {"owner", "former owner", "operator", "admin"}
BEGINNERS = {"owner", "operator", "admin"}
CHANGERS = {"owner", "admin"}
OPERATORS = {"operator", "admin"}
EVERYBODY = set(PEOPLE)

#: Each operation on ann's task in the shared project, or on what is hers, and who may do it.
OPERATIONS: dict[str, tuple[Callable[[Desk, str], object], set[str]]] = {
    "status": (lambda desk, _: desk.status(), EVERYBODY),
    "capacity": (lambda desk, _: desk.capacity(), EVERYBODY),
    "list": (lambda desk, _: desk.list_tasks(), EVERYBODY),
    "find": (lambda desk, task: desk.find(task), EVERYBODY),
    "show": (lambda desk, task: desk.show(task), EVERYBODY),
    "end": (lambda desk, task: desk.end(task), EVERYBODY),
    "events": (lambda desk, task: desk.events(task=task), EVERYBODY),
    "locks": (lambda desk, _: desk.locks(), EVERYBODY),
    "past locks": (lambda desk, _: desk.past_locks(), EVERYBODY),
    "pauses": (lambda desk, _: desk.pauses(), EVERYBODY),
    "why": (lambda desk, task: desk.why(task), READERS),
    "logs": (lambda desk, task: desk.logs(task), READERS),
    "cancel": (lambda desk, task: desk.cancel(task), STOPPERS),
    "reorder": (lambda desk, task: desk.change(task, {"priority": "low"}), STOPPERS),
    "retry": (lambda desk, task: desk.retry(task), BEGINNERS),
    "look at run": (lambda desk, task: desk.look_at_run(task), BEGINNERS),
    "requeue": (lambda desk, task: desk.requeue(task), BEGINNERS),
    "change the title": (lambda desk, task: desk.change(task, {"title": "x"}), CHANGERS),
    "change the time": (lambda desk, task: desk.change(task, {"run_at": "+1h"}), CHANGERS),
    "change both": (lambda desk, task: desk.change(task, {"priority": "low", "title": "x"}), CHANGERS),
    "pause the user": (lambda desk, _: desk.pause("user:ann"), BEGINNERS),
    "resume the user": (lambda desk, _: desk.resume("user:ann"), BEGINNERS),
    "pause all": (lambda desk, _: desk.pause("all"), OPERATORS),
    "resume all": (lambda desk, _: desk.resume("all"), OPERATORS),
    "pause the project": (lambda desk, _: desk.pause("project:shared"), OPERATORS),
    "hold the lock": (lambda desk, _: desk.try_lock("ann", this_holder()), BEGINNERS),
    "release the lock": (lambda desk, _: desk.free_lock("ann"), BEGINNERS),
    "force the lock": (lambda desk, _: desk.free_lock("ann", force=True), OPERATORS),
    "release a task's lock": (lambda desk, task: desk.free_lock(f"task:{task}"), OPERATORS),
}
CASES = [(name, who) for name in OPERATIONS for who in PEOPLE]


def may(act: Callable[[], object]) -> bool:
    """Whether an operation was not forbidden; whatever else it is refused for."""
    try:
        act()
    except ForbiddenError:
        return False
    except FairleadError:
        return True
    return True


@pytest.mark.parametrize(("name", "who"), CASES, ids=lambda value: value.replace(" ", "-"))
def test_who_may_do_what(system: System, name: str, who: str) -> None:
    """As the table says."""
    act, allowed = OPERATIONS[name]
    task = system.task()
    assert may(lambda: act(system.desk(who), task)) == (who in allowed)


def test_every_operation_of_the_desk_is_in_the_table() -> None:
    """Whoever adds one has to say who may do it."""
    elsewhere = {"submit", "foretell", "let_go", "last_event", "event_before", "is_over", "sees"}
    inside = {"task", "operations", "allow"}
    named = {"list": "list_tasks", "past locks": "past_locks", "reorder": "change", "look at run": "look_at_run"}
    named |= {
        "hold the lock": "try_lock",
        "release the lock": "free_lock",
        "pause all": "pause",
        "resume all": "resume",
    }
    offered = {name for name in dir(Desk) if not name.startswith("_")}
    assert offered - elsewhere - inside == {
        named.get(name, name) for name in OPERATIONS if name.isalpha() or name in named
    }


# ---------------------------------------------------------------------- what is seen


@pytest.mark.parametrize("who", PEOPLE)
def test_what_is_seen_of_a_task(system: System, who: str) -> None:
    """All of it, or what everybody may know: in lists, by itself, and in what happened to it."""
    task, desk = system.task(title="hidden", env="{KEY: secret}"), system.desk(who)
    system.instance.store.note(Event(at=1, event="started", task_id=task, user="ann", detail={"error": "secret"}))
    [listed] = desk.list_tasks()
    answers = [listed, desk.find(task), desk.show(task), desk.end(task), *desk.events(), *desk.events(task=task)]
    if who in READERS:
        assert {answer["title"] for answer in answers[:3]} == {"hidden"}
        assert "secret" in str(desk.events())
    else:
        assert [set(answer) for answer in answers[:3]] == [set(PUBLIC)] * 3
        assert "secret" not in str(answers)
        assert "hidden" not in str(answers)


def test_without_members_a_project_shares_nothing(system: System) -> None:
    """Everybody may use it, and sees his own tasks."""
    task = system.task(project="plain")
    assert set(system.desk("member").find(task)) == set(PUBLIC)
    assert "prompt" in system.desk("owner").find(task)


def test_a_refusal_names_the_owner(system: System) -> None:
    """And who else may do it."""
    task = system.task()
    with pytest.raises(
        ForbiddenError, match=f"task {task} is ann's: only its owner, an operator or an admin may cancel"
    ):
        system.desk("other").cancel(task)
    with pytest.raises(ForbiddenError, match=f"task {task} is ann's: only its owner or an admin may read it"):
        system.desk("operator").logs(task)
    with pytest.raises(ForbiddenError, match=r"ann may not use this queue: `users.allow` has to name him"):
        system.desk("former owner").retry(task)


def test_evidence_of_locks_is_for_whom_it_concerns(system: System) -> None:
    """That somebody holds a lock is no secret; what was found out about his processes is one."""
    desk = system.desk("owner")
    lock = desk.try_lock("ann", this_holder())
    assert lock
    assert system.desk("other").locks()["locks"][0]["lock_id"] == lock["lock_id"]
    desk.let_go("ann", lock["lock_id"], this_holder(), 3)
    [hers], [his] = desk.past_locks(), system.desk("other").past_locks()
    assert hers["evidence"]["exit_code"] == 3
    assert (his["lock_id"], his["why"], his["evidence"]) == (hers["lock_id"], "", {})


def test_a_refused_file_is_told_of_to_its_owner_alone(system: System) -> None:
    """The text may quote it."""
    store = system.instance.store
    store.note(Event(at=1, event="rejected", user="ann", detail={"id": "20260101-x", "error": "secret"}))
    with pytest.raises(FairleadError, match="20260101-x was refused: secret"):
        system.desk("owner").end("20260101-x")
    with pytest.raises(FairleadError, match="there is no task 20260101-x"):
        system.desk("other").end("20260101-x")


# ---------------------------------------------------------------------- pauses and locks


def test_what_an_operator_paused_stays_paused(system: System) -> None:
    """Its user can neither resume it nor make it his own pause."""
    system.desk("operator").pause("user:ann", "her disk is full")
    for act in (system.desk("owner").resume, system.desk("owner").pause):
        with pytest.raises(
            ForbiddenError, match="user:ann was paused by olga: only an operator or an admin may resume it"
        ):
            act("user:ann")
    system.desk("admin").resume("user:ann")
    system.desk("owner").pause("user:ann")
    assert system.desk("owner").resume("user:ann")["was_paused"]


def test_a_lock_is_let_go_of_by_its_holder_alone(system: System) -> None:
    """Another process of the same user's does not end what the first one is at."""
    desk, holder = system.desk("owner"), this_holder()
    lock = desk.try_lock("ann", holder)
    assert lock
    other = type(holder)(host=holder.host, boot_id=holder.boot_id, pid=1, start=1)
    with pytest.raises(ForbiddenError, match="the lock of ann is held by another process"):
        desk.let_go("ann", lock["lock_id"], other)
    assert desk.let_go("ann", lock["lock_id"], holder) == {"released": True}
    assert desk.let_go("ann", lock["lock_id"], holder) == {"released": False}


# ---------------------------------------------------------------------- submitting


@pytest.mark.parametrize("who", PEOPLE)
def test_who_may_submit(system: System, who: str) -> None:
    """Those whom the settings allow, for themselves, and in a shared project its members."""
    name = PEOPLE[who].name
    plain = File("a.yaml", b"prompt: x\nproject: plain")
    is_allowed = name in ("ann", "bob", "mel", "olga")
    assert may(lambda: system.desk(who).submit([plain])) == is_allowed
    assert may(lambda: system.desk(who).foretell([plain])) == is_allowed
    shared = File("a.yaml", b"prompt: x\nproject: shared")
    assert may(lambda: system.desk(who).submit([shared])) == (name in ("ann", "mel"))
    assert {task["user"] for task in system.desk("admin").list_tasks()} <= {name}


def test_nobody_submits_for_somebody_else(system: System) -> None:
    """Not even an operator; of several files none is taken then."""
    mine, yours = File("a.yaml", b"prompt: x"), File("b.yaml", b"prompt: x\nuser: ann")
    with pytest.raises(UsageError, match=r"(?s)this is ann's, but olga submits it.*nothing was submitted"):
        system.desk("operator").submit([mine, yours])
    assert system.desk("admin").list_tasks() == []


# ---------------------------------------------------------------------- callers


def test_roles_come_from_the_settings() -> None:
    """Root is admin and no user; in one's own instance whoever has opened it is everything."""
    config = Config(users=Users(allow=("uid-60001",)), operators=("uid-60002",), admins=("uid-60003",))
    root = caller_of(0, config)
    assert (root.is_user, root.is_operator, root.is_admin) == (False, True, True)
    assert caller_of(60001, config) == Caller(name="uid-60001", uid=60001, is_user=True)
    assert caller_of(60002, config) == Caller(name="uid-60002", uid=60002, is_operator=True)
    assert caller_of(60003, config) == Caller(name="uid-60003", uid=60003, is_operator=True, is_admin=True)
    assert caller_of(60004, config) == Caller(name="uid-60004", uid=60004)
    own = master(60004)
    assert (own.is_user, own.is_operator, own.is_admin) == (True, True, True)
