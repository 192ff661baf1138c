"""Run inside a booted host, as one of its users: `python dropping.py flood|probe SPOOL ...`.

`flood SPOOL FILES` drops so many files at once. `probe SPOOL LOCK ROUNDS` drops one file after the other, each when
nothing of its user's runs any more, and prints how long it took until its agent ran. Needs nothing but the standard
library.
"""

import json
import os
import sys
import time

#: A task of the flood: long enough that the queue stays long.
FLOOD = {"prompt": "sleep 1"}
PAUSE = 0.005


def flood(spool: str, count: int) -> None:
    """Prepare the files where nobody looks, then drop them all: the first rename to the last takes a moment."""
    place = os.path.join(spool, ".prepared")
    os.mkdir(place)
    names = [f"flood-{number}.json" for number in range(count)]
    for name in names:
        with open(os.path.join(place, name), "w", encoding="ascii") as file:
            json.dump(FLOOD, file)
    for name in names:
        os.rename(os.path.join(place, name), os.path.join(spool, name))
    os.rmdir(place)


def probe(spool: str, lock: str, rounds: int) -> None:
    """Print a line of seconds for each round."""
    fifo = os.path.join(os.path.expanduser("~"), "stamp")
    if not os.path.exists(fifo):
        os.mkfifo(fifo)
    for _ in range(rounds):
        _wait_gone(lock)
        print(_start(spool, fifo), flush=True)


def _start(spool: str, fifo: str) -> float:
    """Seconds from the rename to what the agent does first: it reads the clock."""
    hidden, dropped = os.path.join(spool, ".probe.json"), os.path.join(spool, "probe.json")
    with open(hidden, "w", encoding="ascii") as file:
        json.dump({"prompt": f"exec date +%s%N >{fifo}"}, file)
    before = time.time_ns()
    os.rename(hidden, dropped)
    with open(fifo, encoding="ascii") as stamp:
        return (int(stamp.read()) - before) / 1e9


def _wait_gone(lock: str) -> None:
    while os.path.lexists(lock):
        time.sleep(PAUSE)


if __name__ == "__main__":
    if sys.argv[1] == "flood":
        flood(sys.argv[2], int(sys.argv[3]))
    else:
        probe(sys.argv[2], sys.argv[3], int(sys.argv[4]))
