"""Memory of the daemon while it works on a queue as long as it gets, against the same with a short one."""

import os
from collections.abc import Iterator

from bench.figures import Figure, Target
from bench.instance import running
from bench.long_queue import long_queue
from bench.plan import Plan

MOST = 200.0
#: Tasks that are worked off before the look, so that everything is in use that ever is.
WARM = 200


def run(plan: Plan) -> Iterator[Figure]:
    """Measure."""
    many = _measure(os.path.join(plan.place, "many"), plan.many, 1000)
    few = _measure(os.path.join(plan.place, "few"), plan.few, 100)
    for name in ("Rss", "Pss"):
        yield Figure(
            what=f"memory of the daemon ({name.upper()}), {plan.many:,} pending",
            measured=f"{many[name]:.0f} MB",
            against=f"{few[name]:.0f} MB: {plan.few:,} pending",
            ratio=many[name] / few[name],
            target=Target(f"below {MOST:.0f} MB", many[name] < MOST),
        )


def _measure(home: str, count: int, users: int) -> dict[str, float]:
    store, _ = long_queue(home, count, users)
    store.close()
    with running(home) as instance:
        instance.wait_finished(instance.finished() + min(WARM, count // 4))
        used = _used(instance.services["daemon"].pid)
        instance.drain()
    return used


def _used(pid: int) -> dict[str, float]:
    """The lines of smaps_rollup, in MB."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        fields = [line.split() for line in file if line.endswith("kB\n")]
    return {words[0].rstrip(":"): int(words[1]) / 1024 for words in fields}
