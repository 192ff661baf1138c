"""One run of a program that does nothing: from handing its directory to the spawner to its durably written end."""

import os
import select
from collections.abc import Iterator

from bench.figures import Figure, ms
from bench.measuring import NOTHING, in_turn, spawn_nothing
from bench.plan import Plan
from fairlead.base.bell import Listener
from fairlead.base.clock import SystemClock
from fairlead.base.identity import boot_id, host
from fairlead.conductor import rundir
from fairlead.conductor.launcher import ProcessLauncher
from fairlead.conductor.meta import Meta, read_meta
from fairlead.conductor.orders import Launch


def run(plan: Plan) -> Iterator[Figure]:
    """Measure."""
    runs = _Runs(os.path.join(plan.place, "running"))
    runs.play()  # the first one starts the spawner, too
    took, baseline = in_turn(plan.rounds, runs.play, spawn_nothing)
    runs.close()
    yield Figure(
        what="a whole run: directory made to end written",
        measured=ms(took),
        against=f"{ms(baseline)}: spawn and wait",
        ratio=took / baseline,
    )


class _Runs:
    """Runs, one after the other; the bench hears what the watchdog would hear."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.bells = os.path.join(place, "bells")
        os.makedirs(self.bells)
        self.listener = Listener(self.bells, "watchdog")
        self.launcher = ProcessLauncher(os.path.join(place, "spawner.err"), self.bells)
        self.count = 0

    def play(self) -> None:
        """One run, from its directory to its end."""
        self.count += 1
        run_dir = rundir.active_dir(self.place, "bench", f"run-{self.count}", 1)
        rundir.create(run_dir, self._meta(), self._launch(), "")
        self.launcher.launch(run_dir)
        while not any(word.startswith("ended ") for word in self.listener.take()):
            select.select([self.listener], [], [], 1.0)
        if not read_meta(run_dir).ended:
            raise RuntimeError("an end was rung that is not written")

    def _meta(self) -> Meta:
        clock = SystemClock()
        return Meta(
            id=f"run-{self.count}",
            status="claimed",
            user="ann",
            project="bench",
            agent="shell",
            attempt=1,
            lock_id=f"bench-{os.getpid()}-{self.count}",
            token=self.count,
            host=host(),
            boot_id=boot_id(),
            claimed_boot=clock.boot(),
            claimed_at=clock.wall_ms(),
        )

    def _launch(self) -> Launch:
        return Launch(
            argv=(NOTHING,),
            cwd=self.place,
            env={},
            stdin=None,
            timeout=60.0,
            grace=1.0,
            stop_signal="TERM",
            heartbeat=5.0,
            output_bytes=1 << 20,
            result_bytes=1 << 20,
            artifacts=(),
            artifacts_max=1,
            bells=self.bells,
            task={},
        )

    def close(self) -> None:
        """Let the spawner go."""
        self.launcher.close()
        self.listener.close()
