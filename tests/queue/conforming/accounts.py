"""Shares: who is charged how much, that nobody saves up, and that the clock of the accounts never goes back."""

from math import isclose

import pytest
from tests.queue.conforming.base import Conforming
from tests.queue.driver import DAY, HOUR, NOW, Driver, MakeStore, picked, picked_users
from tests.queue.usage import usage

from fairlead.queue import standing
from fairlead.queue.decide import decide
from fairlead.queue.states import Status
from fairlead.queue.store import Share
from fairlead.queue.task import Changes

HALF_LIFE = 14400.0


def standing_of(drive: Driver, user: str) -> float:
    return drive.store.candidate(user).standing


class Accounts(Conforming):
    """What claim and finish do to the accounts, set_shares, and the lifting of newcomers."""

    # ------------------------------------------------------------------ charging

    def test_time_held_is_charged(self, drive: Driver) -> None:
        """A user's and his project's standing are those of the arithmetic, to the last digit but a few."""
        drive.store.set_shares(Share(half_life=HALF_LIFE, weights={"alice": 2.0}), now=NOW)
        drive.serve("alice", 600)
        begun = standing.floor(NOW / 1000, HALF_LIFE)
        expected = standing.charge(begun, 600, 2.0, NOW / 1000 + 600, HALF_LIFE)
        assert isclose(standing_of(drive, "alice"), expected, rel_tol=1e-12)

    def test_cost_is_charged_only_where_the_settings_say_so(self, make_store: MakeStore, drive: Driver) -> None:
        """With `charge: time` a reported cost counts for nothing."""
        for user, cost in (("alice", 900.0), ("bob", None)):
            drive.finish(drive.run_one(user), held=10.0, cost=cost)
        assert standing_of(drive, "alice") == standing_of(drive, "bob")
        by_cost = Driver(make_store(Share(charge_cost=True)))
        by_cost.finish(by_cost.run_one("carol"), held=10.0, cost=900.0)
        by_cost.finish(by_cost.run_one("dave"), held=10.0, cost=None)
        assert isclose(usage(standing_of(drive, "carol"), 1.0, 0, 0), 900.0, rel_tol=1e-3)
        assert isclose(usage(standing_of(drive, "dave"), 1.0, 0, 0), 10.0, rel_tol=1e-3)

    def test_a_cost_fades_over_the_time_in_which_it_arose(self, make_store: MakeStore) -> None:
        """A cost that arose in a second has not faded, however large it is."""
        drive = Driver(make_store(Share(half_life=60.0, charge_cost=True)))
        drive.finish(drive.run_one("alice"), held=1.0, cost=6000.0)
        assert isclose(usage(standing_of(drive, "alice"), 1.0, NOW / 1000, 60.0), 6000.0, rel_tol=0.01)

    def test_projects_of_one_user_share_his_turn(self, drive: Driver) -> None:
        """The project that has had less is next."""
        _, last = drive.add_many(2, "alice", "a"), drive.add_many(2, "alice", "b")[1]
        for held in (100.0, 10.0):
            [claim] = drive.claim()
            drive.finish(claim, held=held)
        assert picked(drive.look()) == [last]

    # ------------------------------------------------------------------ settings

    def test_new_weights_keep_what_was_used(self, drive: Driver) -> None:
        """The same usage under twice the weight is one step of two less, for users and projects."""
        drive.serve("alice", 100)
        before, lane = standing_of(drive, "alice"), drive.store.candidate("alice")
        drive.store.set_shares(Share(weights={"alice": 2.0}, project_weights={"site": 4.0}), now=drive.now)
        drive.add("alice")
        assert isclose(standing_of(drive, "alice"), before - 1)
        assert isclose(drive.store.candidate("alice").lanes[0].standing, before - 2)
        assert lane.lanes == ()

    def test_a_new_half_life_keeps_what_was_used(self, drive: Driver) -> None:
        """Standings are converted as a whole: what somebody has used stays the same."""
        drive.store.set_shares(Share(half_life=HALF_LIFE), now=NOW)
        drive.serve("alice", 100)
        used = usage(standing_of(drive, "alice"), 1.0, drive.now / 1000, HALF_LIFE)
        drive.store.set_shares(Share(half_life=60.0), now=drive.now)
        assert isclose(usage(standing_of(drive, "alice"), 1.0, drive.now / 1000, 60.0), used, rel_tol=1e-6)

    def test_a_process_with_other_settings_does_not_mix_half_lives(self, drive: Driver, make_store: MakeStore) -> None:
        """Until the settings are applied for all, everybody counts with the half-life that is in the store."""
        drive.store.set_shares(Share(half_life=HALF_LIFE), now=NOW)
        drive.serve("alice", 1000)
        newer = Driver(make_store(Share(half_life=60.0)), drive.now)
        newer.serve("bob", 1000)
        t = newer.now / 1000
        alice, bob = (usage(standing_of(drive, user), 1.0, t, HALF_LIFE) for user in ("alice", "bob"))
        assert isclose(alice, bob * 0.5 ** (1000 / HALF_LIFE), rel_tol=1e-5)

    def test_a_weight_is_changed_by_the_settings_alone(self, drive: Driver, make_store: MakeStore) -> None:
        """A process that has not heard of new weights does not undo them when a user comes back."""
        drive.serve("alice", 100)
        drive.store.set_shares(Share(weights={"alice": 4.0}), now=drive.now)
        stale = Driver(make_store(Share()), drive.now)
        stale.serve("alice", 100)
        expected = standing.charge(standing.charge(None, 100, 4.0, 0, 0), 100, 4.0, 0, 0)
        assert isclose(standing_of(drive, "alice"), expected, abs_tol=1e-3)

    # ------------------------------------------------------------------ newcomers

    def test_a_newcomer_starts_where_the_others_are(self, drive: Driver) -> None:
        """Not below the lowest who waits, and not below whom he finds running."""
        drive.serve("alice", 100)
        drive.serve("bob", 200)
        drive.add("alice")
        drive.add("carol")
        assert standing_of(drive, "carol") == standing_of(drive, "alice")
        drive.run_one("bob")
        drive.add("dave")
        assert standing_of(drive, "dave") == standing_of(drive, "bob")

    def test_a_running_express_task_lifts_nobody(self, drive: Driver) -> None:
        """It did not wait for its user's turn, so it says nothing about where the others are."""
        drive.serve("olga", 500)
        assert drive.claim_task(drive.add("olga", priority=0, express=True))
        drive.add("carol")
        assert standing_of(drive, "carol") < standing_of(drive, "olga")

    def test_debts_stay(self, drive: Driver) -> None:
        """Who has had more than the others comes back with that."""
        drive.serve("alice", 1000)
        debt = standing_of(drive, "alice")
        drive.add("bob")
        drive.add("alice")
        assert standing_of(drive, "alice") == debt
        assert picked_users(drive.look()) == ["bob", "alice"]

    def test_a_task_with_a_far_date_saves_nothing_up(self, drive: Driver) -> None:
        """Who has only a task for later is away: when it comes due, or another task comes, he is lifted."""
        for user in ("early", "late"):
            drive.add(user, run_at=NOW + HOUR)
        drive.serve("alice", 1000)
        drive.add("alice")
        drive.add("early")
        drive.now = NOW + 2 * HOUR
        drive.store.promote_due(drive.now)
        assert standing_of(drive, "early") >= standing_of(drive, "alice")
        assert standing_of(drive, "late") >= standing_of(drive, "alice")

    def test_a_date_taken_away_saves_nothing_up(self, drive: Driver) -> None:
        """A task that is made due by a change makes its user a newcomer, too."""
        task_id = drive.add("bob", run_at=NOW + HOUR)
        drive.serve("alice", 1000)
        drive.add("alice")
        drive.store.update(task_id, 1, Changes(run_at=None), now=drive.now)
        assert standing_of(drive, "bob") == standing_of(drive, "alice")

    @pytest.mark.parametrize("how", ["hold", "user:bob", "project:site", "all"])
    def test_nobody_saves_up_behind_a_hold_or_a_pause(self, drive: Driver, how: str) -> None:
        """Whoever was kept from starting comes back at the level of the others; after a pause of all, where he was."""
        drive.add("bob")
        drive.add("alice", "other")
        was = standing_of(drive, "bob")
        lock_id = drive.hold("bob") if how == "hold" else None
        if lock_id is None:
            drive.store.pause(how, by="op", reason="", now=NOW)
        if how != "all":
            [claim] = drive.claim()
            drive.finish(claim, held=1000.0)
            drive.add("alice", "other")
            assert standing_of(drive, "bob") == was
        assert drive.release(lock_id) if lock_id else drive.store.resume(how, by="op", now=drive.now)
        assert standing_of(drive, "bob") == (was if how == "all" else standing_of(drive, "alice"))

    def test_nobody_saves_up_behind_what_the_store_does_not_see(self, drive: Driver) -> None:
        """Who was kept out by a foreign file comes back at the level of the others, with his debts."""
        for user in ("bob", "alice"):
            drive.add(user)
        for _ in range(2):
            [claim] = drive.claim(["bob"])
            drive.finish(claim, held=1000.0)
            drive.add("alice")
        drive.store.come_back("bob", drive.now)
        assert standing_of(drive, "bob") == standing_of(drive, "alice")
        drive.serve("alice", 1)
        debt = standing_of(drive, "alice")
        drive.store.come_back("alice", drive.now)
        assert standing_of(drive, "alice") == debt

    def test_who_has_nothing_to_do_does_not_come_back(self, drive: Driver) -> None:
        """No account is opened or lifted for somebody who waits for nothing: his next task does that."""
        drive.serve("bob", 10)
        was = standing_of(drive, "bob")
        drive.serve("alice", 1000)
        drive.add("alice")
        for user in ("bob", "nobody"):
            drive.store.come_back(user, drive.now)
        assert standing_of(drive, "bob") == was

    def test_a_project_does_not_save_up_behind_its_pause(self, drive: Driver) -> None:
        """It comes back at the level of its user's other projects; its user, who went on, stays where he is."""
        drive.serve("bob", 5000)
        for project in ("frozen", "site"):
            drive.serve("alice", 1, project)
        drive.add("alice", "frozen")
        drive.add("bob")
        drive.store.pause("project:frozen", by="op", reason="", now=drive.now)
        drive.serve("alice", 500, "site")
        drive.add("alice", "site")
        own = standing_of(drive, "alice")
        drive.store.resume("project:frozen", by="op", now=drive.now)
        lanes = {lane.project: lane.standing for lane in drive.store.candidate("alice").lanes}
        assert lanes["frozen"] == lanes["site"]
        assert standing_of(drive, "alice") == own

    @pytest.mark.parametrize("how", ["hold", "user:low", "project:frozen"])
    def test_who_cannot_start_does_not_hold_the_level_down(self, drive: Driver, how: str) -> None:
        """Whoever waits behind a hold or a pause is no measure for newcomers."""
        drive.add("low", "frozen")
        if how == "hold":
            assert drive.hold("low")
        else:
            drive.store.pause(how, by="op", reason="", now=NOW)
        drive.serve("alice", 1000)
        drive.add("alice")
        drive.add("bob")
        assert standing_of(drive, "bob") == standing_of(drive, "alice")

    # ------------------------------------------------------------------ the clock

    def test_a_clock_set_back_breaks_no_order(self, drive: Driver, make_store: MakeStore) -> None:
        """A day back, and in a new process: who has had less is still next, and newcomers still are newcomers."""
        drive.store.set_shares(Share(half_life=3600.0), now=NOW)
        for user in ("bob", "alice"):
            drive.add_many(2, user)
        bobs, alices = drive.claim()
        drive.finish(alices, held=100.0)
        earlier = Driver(make_store(Share(half_life=3600.0)), NOW - DAY)
        earlier.finish(bobs, held=200.0)
        earlier.add("carol")
        assert picked_users(earlier.look()) == ["alice", "carol", "bob"]
        assert standing_of(drive, "carol") == standing_of(drive, "alice")

    def test_a_clock_set_back_does_not_make_new_tasks_old(self, drive: Driver, make_store: MakeStore) -> None:
        """What a task has waited is measured by the clock that never goes back."""
        high = drive.add(priority=1)
        earlier = Driver(make_store(), NOW - DAY)
        low = earlier.add(priority=3)
        snapshot = earlier.look()
        assert picked(snapshot) == [high]
        since = {head.task_id: head.since for head in snapshot.candidates[0].lanes[0].heads}
        assert since[low] >= since[high]
        assert snapshot.now >= max(since.values())

    def test_a_date_is_wall_time_whatever_the_accounts_say(self, drive: Driver, make_store: MakeStore) -> None:
        """After the clock was set back, a `run_at` between the two times is still to come."""
        drive.add("bob")
        earlier = Driver(make_store(), NOW - DAY)
        task_id = earlier.add(run_at=NOW - HOUR)
        assert earlier.claim_task(task_id) == []
        earlier.now = NOW - HOUR
        assert earlier.store.promote_due(earlier.now) == 1
        assert earlier.claim_task(task_id)

    def test_an_end_recorded_with_an_earlier_clock_never_lowers_a_standing(self, drive: Driver) -> None:
        """Charges only add."""
        drive.store.set_shares(Share(half_life=60.0), now=NOW)
        claim = drive.run_one("alice")
        before = standing_of(drive, "alice")
        drive.now -= DAY
        drive.finish(claim, Status.FAILED, held=5.0)
        assert standing_of(drive, "alice") > before
        drive.add("alice")
        assert decide(drive.look()).picks
