"""The dispatcher: takes files in, decides who is next, claims, locks and starts.

`run_once` is one pass over the named steps; `fairlead.daemon.process` repeats it whenever something rings.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from fairlead.base.bell import ring_all
from fairlead.base.clock import Clock
from fairlead.base.identity import boot_id, host
from fairlead.conductor import rundir
from fairlead.conductor.launch import CannotLaunchError, prepare_launch
from fairlead.conductor.launcher import Launcher, SpawnerGoneError
from fairlead.conductor.liveness import Void, void
from fairlead.conductor.meta import Meta
from fairlead.config.paths import Paths
from fairlead.config.schema import Config
from fairlead.daemon.spool import Spool
from fairlead.queue.admit import Admission, Log
from fairlead.queue.decide import decide
from fairlead.queue.locks import LockManager, this_holder
from fairlead.queue.states import Status
from fairlead.queue.store import Claim, Ended, Store, Terms
from fairlead.queue.task import Outcome


class Dispatcher:
    """One pass at a time; holds nothing that a crash could lose."""

    def __init__(
        self,
        *,
        paths: Paths,
        config: Config,
        store: Store,
        locks: LockManager,
        launcher: Launcher,
        spool: Spool,
        clock: Clock,
        log: Log,
        environ: Mapping[str, str],
    ) -> None:
        self.paths = paths
        self.config = config
        self.store = store
        self.locks = locks
        self.launcher = launcher
        self.spool = spool
        self.clock = clock
        self.log = log
        self.environ = environ
        self.admission = Admission(paths, config, store, clock, log)
        #: Files are still settling, or more are waiting than one batch takes.
        self.more_to_take = False
        self._host, self._boot = host(), boot_id()

    def run_once(self) -> None:
        """All steps, in order. Each may fail and be repeated: none depends on what an earlier pass remembered."""
        for step in self.steps():
            step()

    def steps(self) -> tuple[Callable[[], None], ...]:
        """What one pass does."""
        return (
            self.take_in_files,
            self.promote_due_tasks,
            self.start_tasks,
        )

    # ------------------------------------------------------------------ step: take in files

    def take_in_files(self) -> None:
        """Dropped files become tasks, one batch per pass, so that starting is never far behind a flood."""
        names, settling = self.spool.complete()
        batch = self.config.spool.batch
        claimed = [claim for name in names[:batch] if (claim := self.admission.claim(name))]
        waiting = claimed or self.admission.claimed()[:batch]
        self.more_to_take = settling or len(names) > batch
        if waiting and self.admission.admit(waiting).admitted:
            ring_all(self.paths.bells, "queued", but="daemon")

    # ------------------------------------------------------------------ step: promote due tasks

    def promote_due_tasks(self) -> None:
        """Tasks whose time has come take part from now on."""
        while self.store.promote_due(self.clock.wall_ms()):
            pass

    # ------------------------------------------------------------------ step: start tasks

    def start_tasks(self) -> None:
        """Fill the free slots by fair share; users with a lock are passed over, and so is who cannot start."""
        out = self.locks.foreign()
        while claims := self._claim(out):
            for claim in claims:
                if not self._start(claim):
                    out.add(claim.task.spec.user)

    def _claim(self, out: set[str]) -> list[Claim]:
        """Decide and claim, in one transaction with the lock."""
        config = self.config
        free = config.slots.max - len(self.store.active())
        if free <= 0:
            return []
        serialized = config.per_user_serialization.enabled
        now = self.clock.wall_ms()
        snapshot = self.store.snapshot(
            now=now, free_slots=free, ageing=config.fair_share.ageing, serialized=serialized, exclude=out
        )
        decision = decide(snapshot)
        if not decision.picks:
            return []
        terms = Terms(
            now=now,
            slots=config.slots.max,
            serialized=serialized,
            lease=config.per_user_serialization.lock_timeout_seconds,
            holder=this_holder(),
        )
        return self.store.claim(decision.picks, terms)

    def _start(self, claim: Claim) -> bool:
        """Show the lock, make the run directory, have a supervisor started; False if the user must be left alone."""
        task = claim.task
        if not self.locks.show(claim.lock):
            self._take_back(claim, "a foreign lock file is there")
            return False
        run_dir = rundir.active_dir(self.paths.conductor, task.spec.project, task.id, task.attempt)
        try:
            launch = prepare_launch(claim, run_dir, self.config, self.paths, self.environ)
            rundir.create(run_dir, self._meta(claim), launch, task.spec.prompt)
            self.launcher.launch(run_dir)
        except CannotLaunchError as error:
            self._fail(claim, str(error))
        except (SpawnerGoneError, FileExistsError) as error:
            self.log.warning("not_started", task=task.id, user=task.spec.user, error=str(error))
            self._void(claim, run_dir)
            return False
        else:
            self.log.info("claimed", task=task.id, user=task.spec.user, attempt=task.attempt, token=claim.token)
        return True

    def _meta(self, claim: Claim) -> Meta:
        spec = claim.task.spec
        return Meta(
            id=claim.task.id,
            status=Status.CLAIMED,
            user=spec.user,
            project=spec.project,
            agent=spec.agent,
            attempt=claim.task.attempt,
            lock_id=claim.lock_id,
            token=claim.token,
            host=self._host,
            boot_id=self._boot,
            claimed_boot=self.clock.boot(),
            claimed_at=self.clock.wall_ms(),
        )

    def _void(self, claim: Claim, run_dir: str) -> None:
        """The start failed on the way: take the claim back, unless it did start after all."""
        if void(run_dir) is Void.NEVER_STARTED:
            self._take_back(claim, "the start failed on the way")
            rundir.discard(run_dir)

    def _take_back(self, claim: Claim, reason: str) -> None:
        self.locks.files.drop(claim.lock.user, claim.lock_id)
        now = self.clock.wall_ms()
        self.store.unclaim(claim.task.id, claim.token, reason=reason, now=now, evidence={"never_started": True})
        self.log.warning("requeued", task=claim.task.id, user=claim.task.spec.user, reason=reason)

    def _fail(self, claim: Claim, error: str) -> None:
        """It cannot be started as things are configured: trying again would only repeat that."""
        now = self.clock.wall_ms()
        outcome = Outcome(status=Status.FAILED, reason="cannot_launch", error=error, finished_at=now)
        self.locks.files.drop(claim.lock.user, claim.lock_id)
        self.store.finish([Ended(task_id=claim.task.id, token=claim.token, outcome=outcome)], now=now)
        self.log.warning("failed", task=claim.task.id, user=claim.task.spec.user, error=error)
        ring_all(self.paths.bells, "failed", but="daemon")

    def close(self) -> None:
        """Let go of everything; agents go on."""
        self.spool.close()
        self.launcher.close()
        self.store.close()
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.paths.bells, "daemon"))
