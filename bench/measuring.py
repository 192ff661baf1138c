"""Taking times: medians of several rounds, subject and baseline in turn, so that noise meets both alike."""

import os
import time
from collections.abc import Callable
from statistics import median

NOTHING = "/bin/true"


def seconds(action: Callable[[], object]) -> float:
    """How long an action takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def in_turn(rounds: int, *actions: Callable[[], object]) -> list[float]:
    """The median time of each action, all of them done in turn in every round."""
    times = [[seconds(action) for action in actions] for _ in range(rounds)]
    return [median(of_one) for of_one in zip(*times, strict=True)]


def run_program(argv: tuple[str, ...], env: dict[str, str]) -> None:
    """Start a program with nothing around it, and wait for its end; what it prints is not shown."""
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(argv[0], argv, env, file_actions=silent)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0:
        raise RuntimeError(f"{' '.join(argv)} ended with {code}")


def environment(place: str, **more: str) -> dict[str, str]:
    """Our own environment for what is measured, with compiled modules as an installed Fairlead has them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLEAD_", "PYTHONDONTWRITE"))}
    return kept | {"PYTHONPYCACHEPREFIX": os.path.join(place, "pycache")} | more


def spawn_nothing() -> None:
    """The least that starting a program can cost: the baseline of everything that starts one."""
    os.waitpid(os.posix_spawn(NOTHING, [NOTHING], {}), 0)
