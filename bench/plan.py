"""How much is measured, and where."""

from msgspec import Struct


class Plan(Struct, frozen=True, kw_only=True):
    """The size of every benchmark; `--quick` is for seeing that they work, its figures mean nothing."""

    #: A directory of this run's own, on the file system that is measured.
    place: str
    #: Repetitions that a median is taken of.
    rounds: int = 100
    #: Tasks of each of twenty users.
    tasks: int = 20
    #: Times that a whole load is worked off, ours and the baseline's in turn.
    loads: int = 3
    #: Files dropped at once, and those of them that get a commit each.
    files: int = 10_000
    single_files: int = 1_000
    #: A long queue and a short one.
    many: int = 1_000_000
    few: int = 1_000
    #: Users who hold their locks while another's is measured, and tasks that wait meanwhile.
    holders: int = 1_000
    crowd: int = 100_000
    #: Files that one user drops at once, and starts of another's that are measured meanwhile.
    flood: int = 100_000
    flooded: int = 200


def full(place: str) -> Plan:
    """What `make bench` measures."""
    return Plan(place=place)


def quick(place: str) -> Plan:
    """A smoke run."""
    return Plan(
        place=place,
        rounds=3,
        tasks=1,
        loads=1,
        files=40,
        single_files=10,
        many=2_000,
        few=200,
        holders=20,
        crowd=400,
        flood=2_000,
        flooded=10,
    )
