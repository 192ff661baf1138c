"""In the system's instance a task is whose the kernel says, and not everybody may have one."""

import grp
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.queue.driver import NOW
from tests.queue.places import CONFIG, Place

from fairlead.base.errors import FairleadError
from fairlead.base.ids import new_id
from fairlead.base.principals import forget_groups, groups_of, is_among, is_root
from fairlead.config.paths import Kind
from fairlead.config.schema import Project, Users
from fairlead.queue import admit
from fairlead.queue.rights import ForbiddenError

#: Whoever runs the tests, or a number that nobody has: groups are the system's.
SOMEBODY = pwd.getpwall()[-1].pw_name
PRIMARY = grp.getgrgid(pwd.getpwnam(SOMEBODY).pw_gid).gr_name
SYSTEM = replace(
    CONFIG,
    default_user="alice",
    users=Users(allow=("ann", "bob", "uid-54321")),
    operators=("ann",),
    projects={
        "site": Project(path="/srv/site", owner="wanda"),
        "shared": Project(path="/srv/shared", members=("bob",)),
    },
)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path, SYSTEM, Kind.SYSTEM)
    yield place
    place.close()


def entered(place: Place, owner: str, text: str) -> str:
    """Whose task becomes of a file that the porter delivers."""
    file = place.admission.lay(owner, "task.yaml", text.encode(), new_id(NOW))
    assert place.admission.admit([file]).rejected == ()
    return place.store.get(file.id).spec.user


def refused(place: Place, owner: str, text: str) -> str:
    """Why there is no task of a file."""
    file = place.admission.lay(owner, "task.yaml", text.encode(), new_id(NOW))
    [one] = place.admission.admit([file]).rejected
    return one.error


@pytest.mark.parametrize("text", ["prompt: x", "prompt: x\nuser: ann", "prompt: x\nproject: site"])
def test_a_task_is_its_submitters(place: Place, text: str) -> None:
    """Neither the project's owner nor the settings' default user changes that, and the file may repeat it."""
    assert entered(place, "ann", text) == "ann"


def test_nobody_submits_for_somebody_else(place: Place) -> None:
    """The refusal names both, and where in the file it is."""
    error = refused(place, "ann", "prompt: x\nuser: bob")
    assert "line 2: user: this is bob's, but ann submits it" in error


@pytest.mark.parametrize("name", ["root", "uid-0"])
def test_root_submits_nothing(place: Place, name: str) -> None:
    """Agents never run as root, whatever the settings allow."""
    place.admission.config = replace(SYSTEM, users=Users(allow=(name,)))
    assert f"{name} cannot submit tasks: agents never run as root" in refused(place, name, "prompt: x")


def test_who_is_not_allowed_submits_nothing(place: Place) -> None:
    """Being an operator alone does not help."""
    place.admission.config = replace(SYSTEM, operators=("eve",))
    assert "eve may not use this queue: `users.allow` has to name him" in refused(place, "eve", "prompt: x")


def test_a_shared_project_takes_tasks_of_its_members(place: Place) -> None:
    """Everybody else is refused, and told what would help."""
    assert entered(place, "bob", "prompt: x\nproject: shared") == "bob"
    assert "project shared is for its members, and ann is none" in refused(place, "ann", "prompt: x\nproject: shared")


def test_a_successor_knows_who_handed_a_file_in(place: Place) -> None:
    """The name of a delivered file says it, whoever owns the file by then."""
    file = place.admission.lay("uid-54321", "a@b.yaml", b"prompt: x", new_id(NOW))
    assert place.admission.claimed() == [file]
    [one] = place.admission.admit(place.admission.claimed()).admitted
    assert place.store.get(one.id).spec.submitter == "uid-54321"
    assert os.path.exists(place.admission.accepted.path(one.id, "uid-54321", "a@b.yaml"))


def test_checking_refuses_as_intake_does(place: Place) -> None:
    """Whoever waits for an answer gets the same sentence."""
    with pytest.raises(ForbiddenError, match="eve may not use this queue"):
        admit.read_task(b"prompt: x", "t.yaml", "eve", SYSTEM, place.paths, NOW)
    with pytest.raises(FairleadError, match="this is bob's, but ann submits it"):
        admit.read_task(b"user: bob\nprompt: x", "t.yaml", "ann", SYSTEM, place.paths, NOW)


def test_in_ones_own_instance_users_are_labels(tmp_path: Path) -> None:
    """Whoever can write there may name any user, and nobody is asked."""
    own = Place(tmp_path, replace(SYSTEM, default_user=None))
    assert entered(own, "eve", "prompt: x\nuser: bob") == "bob"
    assert entered(own, "root", "prompt: x\nproject: shared") == "root"
    assert entered(own, "eve", "prompt: x\nproject: site") == "wanda"
    own.close()


# ---------------------------------------------------------------------- principals


def test_operators_may_be_a_group(place: Place) -> None:
    """A critical task of one of its members goes before everybody's."""
    settings = {"users": Users(allow=(SOMEBODY, "bob")), "operators": (f"group:{PRIMARY}",)}
    place.admission.config = replace(SYSTEM, **settings)
    for owner in (SOMEBODY, "bob"):
        entered(place, owner, "prompt: x\npriority: critical")
    express = {
        owner: head.express
        for owner in (SOMEBODY, "bob")
        for lane in place.store.candidate(owner).lanes
        for head in lane.heads
    }
    assert express == {SOMEBODY: True, "bob": False}


def test_a_group_means_all_its_members() -> None:
    """The primary group is one of a user's groups; whom the system does not know is in none."""
    assert is_among(SOMEBODY, (f"group:{PRIMARY}",))
    assert not is_among("no-such-user", (f"group:{PRIMARY}",))
    assert not is_among(SOMEBODY, ("group:no-such-group",))
    assert not is_among(PRIMARY + "x", (PRIMARY, f"group:{PRIMARY}"))
    assert is_among("no-such-user", ("group:web", "no-such-user"))


def test_groups_are_remembered_until_they_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system is not asked for every task, but after a reload."""
    forget_groups()
    assert PRIMARY in groups_of(SOMEBODY)
    monkeypatch.setattr(os, "getgrouplist", lambda *_: [])
    assert PRIMARY in groups_of(SOMEBODY)
    forget_groups()
    assert groups_of(SOMEBODY) == frozenset()
    monkeypatch.undo()
    forget_groups()


def test_root_is_known_by_number() -> None:
    """Any name for the number 0 is root's."""
    assert is_root("root")
    assert is_root("uid-0")
    assert not is_root("no-such-user")
