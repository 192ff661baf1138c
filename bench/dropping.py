"""Run inside a booted host, as one of its users: `python dropping.py flood FILES` or `python dropping.py probe ROUNDS`.

The one drops so many files at once. The other drops one file after the other, each when nothing of its user's runs any
more, and prints how many seconds it took until his agent ran. Needs nothing but the standard library.
"""

import getpass
import json
import os
import sys
import time

SPOOL = "/var/spool/fairlead"
LOCKS = "/var/lib/fairlead/locks"
#: A task of the flood: as long as an agent takes.
_FLOOD = {"prompt": "sleep 30"}
_PAUSE = 0.005


def flood(spool: str, count: int) -> None:
    """Prepare the files where nobody looks, then drop them all: from the first rename to the last is a moment."""
    place = os.path.join(spool, ".prepared")
    os.mkdir(place)
    names = [f"flood-{number}.json" for number in range(count)]
    for name in names:
        with open(os.path.join(place, name), "w", encoding="ascii") as file:
            json.dump(_FLOOD, file)
    os.sync()  # what it costs the disk to take a user's own files is nobody's but his
    for name in names:
        os.rename(os.path.join(place, name), os.path.join(spool, name))
    os.rmdir(place)


def probe(spool: str, lock: str, rounds: int) -> None:
    """Print a line of seconds for each round."""
    fifo = os.path.join(os.path.expanduser("~"), "stamp")
    if not os.path.exists(fifo):
        os.mkfifo(fifo)
    for _ in range(rounds):
        while os.path.lexists(lock):
            time.sleep(_PAUSE)
        sys.stdout.write(f"{_start(spool, fifo)}\n")


def _start(spool: str, fifo: str) -> float:
    """Seconds from the rename to what the agent does first: it reads the clock."""
    hidden = os.path.join(spool, ".probe.json")
    with open(hidden, "w", encoding="ascii") as file:
        json.dump({"prompt": f"exec date +%s%N >{fifo}"}, file)
    before = time.time_ns()
    os.rename(hidden, os.path.join(spool, "probe.json"))
    with open(fifo, encoding="ascii") as stamp:
        return (int(stamp.read()) - before) / 1e9


def main(what: str, count: int) -> None:
    """Do the one or the other as whoever we are."""
    user = getpass.getuser()
    spool = os.path.join(SPOOL, user)
    if what == "flood":
        flood(spool, count)
    else:
        probe(spool, os.path.join(LOCKS, f"user_{user}.lock"), count)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
