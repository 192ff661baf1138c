"""What durability costs here: a file written so that a power cut cannot take it, and a commit of SQLite."""

import os
from collections.abc import Callable, Iterator

from bench.figures import Figure, ms
from bench.measuring import in_turn, spawn_nothing
from bench.plan import Plan
from fairlead.base.files import write_durably
from fairlead.queue.sqlite.connection import Connection


def run(plan: Plan) -> Iterator[Figure]:
    """Measure."""
    place = os.path.join(plan.place, "writing")
    os.mkdir(place)
    path = os.path.join(place, "file")
    with_commit = committing(os.path.join(place, "commits.db"))
    file, commit, spawn = in_turn(plan.rounds, lambda: write_durably(path, b"x" * 500), with_commit, spawn_nothing)
    against = f"{ms(spawn)}: spawn and wait"
    yield Figure(what="a durable file of 500 bytes", measured=ms(file), against=against, ratio=file / spawn)
    yield Figure(what="a commit of one row", measured=ms(commit), against=against, ratio=commit / spawn)


def committing(path: str) -> Callable[[], None]:
    """Something that commits one row, with the settings that the store has."""
    db = Connection(path)
    rows = iter(range(1 << 30))

    def commit() -> None:
        with db.transaction():
            db.run("INSERT INTO facts (name, value) VALUES (?, '')", (str(next(rows)),))

    return commit
