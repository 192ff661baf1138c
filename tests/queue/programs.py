"""What the tests of this folder, and the stories, run in processes of their own."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import apsw
from tests.queue.driver import NOW, Driver, a_spec
from tests.queue.places import Place
from tests.support.kernel_errors import refuse
from tests.support.programs import main, say, together

from fairlead.base.errors import FairleadError
from fairlead.base.files import write_atomically
from fairlead.base.ids import new_id
from fairlead.queue import admit
from fairlead.queue.decide import Pick, decide
from fairlead.queue.lockfiles import LockFiles
from fairlead.queue.sqlite.store import open_store
from fairlead.queue.store import Filter, Lock, Submission


def migrate(path: str, processes: str) -> None:
    """Let processes open a store that is not there yet, all at once."""

    def work(_: int) -> None:
        store = open_store(path)
        say(store.count_active())
        store.close()

    together(int(processes), work)


def add(path: str, processes: str, total: str) -> None:
    """Let processes add tasks one by one, all at once; each says the ids that were acknowledged."""

    def work(number: int) -> None:
        store = open_store(path)
        share = range(number, int(total), int(processes))
        for _ in share:
            item = Submission(id=new_id(NOW), spec=a_spec(f"u{number}"), created_at=NOW)
            [admitted] = store.add([item], now=NOW, warn_at=10**6, refuse_at=10**6)
            say(f"{admitted.id} {admitted.new}")

    together(int(processes), work)


def take_own_locks(home: str, processes: str, times: str) -> None:
    """Let processes take and free the lock of a user each, all at once; each says how often that went well."""

    def work(number: int) -> None:
        place = Place(home)
        taken = 0
        for _ in range(int(times)):
            lock = place.locks.acquire(f"u{number}", "edit", timeout=0)
            taken += lock is not None and place.locks.release(f"u{number}", lock.lock_id)
        say(taken)

    together(int(processes), work)


def claim(path: str, processes: str) -> None:
    """Let processes decide and claim all at once, until nothing is left; each says what it got, with the token."""

    def work(number: int) -> None:
        drive = Driver(open_store(path))
        drive.slots = 10**6
        while picks := decide(drive.look()).picks:
            for made in drive.store.claim(picks, drive.terms()):
                say(f"{made.task.id} {made.token} {number}")

    together(int(processes), work)


def claim_one(path: str, processes: str, task_id: str, user: str) -> None:
    """Let processes claim one and the same task, all at once; whoever got it says so."""

    def work(number: int) -> None:
        drive = Driver(open_store(path))
        if drive.store.claim([Pick(task_id=task_id, user=user, project="site")], drive.terms()):
            say(number)

    together(int(processes), work)


def hold(home: str, user: str) -> None:
    """Hold a user's lock until the input is closed."""
    place = Place(home)
    lock = place.locks.acquire(user, "hold", timeout=30.0)
    say(lock.lock_id if lock else "nothing")
    sys.stdin.read()
    if lock:
        place.locks.release(user, lock.lock_id)


def die_before_file(home: str, user: str) -> None:
    """Take a user's lock, and be killed between the row and the file."""

    class Dying(LockFiles):
        def put(self, _: Lock) -> bool:
            os.kill(os.getpid(), signal.SIGKILL)
            return False

    place = Place(home)
    place.locks.files = Dying(place.paths.locks)
    place.locks.acquire(user, "t", timeout=0)


def count(home: str, number: str, processes: str, times: str) -> None:
    """Let processes add one to a number in a file, each so often, under the lock of one user."""

    def work(_: int) -> None:
        place = Place(home)
        for _ in range(int(times)):
            lock = place.locks.acquire("alice", "count", timeout=60.0)
            with open(number, encoding="ascii") as file:
                value = int(file.read())
            with open(number, "w", encoding="ascii") as file:
                file.write(str(value + 1))
            if lock:
                place.locks.release("alice", lock.lock_id)

    together(int(processes), work)


def claim_immovable(home: str, name: str) -> None:
    """Claim a file that the kernel does not let us move."""
    place = Place(home)
    refuse("rename", errno.EBUSY)
    say(place.admission.claim(name))
    say(place.log.said[-1][0])


def die_admitting(folder: str, files: str) -> None:
    """Claim and admit files in children that are killed, each one call later than the one before; then finish it."""
    for step in range(10_000):
        place = Place(os.path.join(folder, str(step)))
        for name in files.split(","):
            place.drop(name, "nonsense: 1" if name == "bad.yaml" else '{"prompt": "x"}')
        place.close()
        child = os.fork()
        if child == 0:
            _admit_all(place.paths.home, Death(step))
            os._exit(0)
        survived = os.waitpid(child, 0)[1] == 0
        _admit_all(place.paths.home)
        _admit_all(place.paths.home)
        say(f"killed before call {step}: {_judge(place.paths.home, files.split(','))}")
        if survived:
            say("survived")
            return


class Death:
    """Kills this process before one of the calls by which it changes something outside of it."""

    CALLS = ("rename", "link", "unlink", "mkdir", "write", "fsync", "open", "execute")

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, _frame: object, event: str, called: object) -> None:
        if event == "c_call" and getattr(called, "__name__", "") in self.CALLS:
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1


def _admit_all(home: str, death: Death | None = None) -> None:
    """What the dispatcher does with a spool, once it runs again."""
    place = Place(home)
    sys.setprofile(death)
    place.take()
    place.admission.admit(place.admission.claimed())
    sys.setprofile(None)
    place.close()


def _judge(home: str, files: list[str]) -> str:
    """Whether each file has become what it should, once."""
    place = Place(home)
    good = [name for name in files if name != "bad.yaml"]
    sources = sorted(task.spec.source for task in place.store.list_tasks(Filter()))
    events = [event.event for event in place.store.events()].count("queued")
    refused = ["bad.yaml", "bad.yaml.error"] if "bad.yaml" in files else []
    visible = [name for name in place.rejected() if not name.startswith(".")]
    found = [sources, events, len(place.accepted()), visible, place.intake()]
    expected: list[object] = [sorted(good), len(good), len(good), refused, []]
    left = [name for name in os.listdir(place.paths.spool) if name not in ("rejected", ".intake")]
    place.close()
    return "fine" if found == expected and not left else f"{found} {left}"


def write_lock(path: str) -> None:
    """Hold SQLite's write lock until the input is closed."""
    db = apsw.Connection(path)
    db.execute("BEGIN IMMEDIATE")
    say("held")
    sys.stdin.read()
    db.execute("ROLLBACK")


def after_fork(path: str) -> None:
    """Use a store in a child that got it through a fork; the child says what came of it."""
    store = open_store(path)
    child = os.fork()
    if child == 0:
        _tell(store.count_active)
        _tell(lambda: Driver(store).add())
        store.close()
        say("closed")
        os._exit(0)
    os.waitpid(child, 0)
    say(Driver(store).add() in store.find("2027"))


def failing_disk(path: str, call: str) -> None:
    """Commit while the kernel refuses to sync."""
    drive = Driver(open_store(path))
    drive.add()
    refuse(call, errno.EIO)
    _tell(drive.add)


def full_disk(folder: str) -> None:
    """Fill a small disk with tasks, then free a little and go on."""
    _mount(folder, "size=2m")
    drive = Driver(open_store(os.path.join(folder, "queue.db")))
    ballast = os.path.join(folder, "ballast")
    with open(ballast, "wb") as file:
        file.write(bytes(400_000))
    acknowledged: list[str] = []
    _tell(lambda: _fill(drive, acknowledged))
    os.unlink(ballast)
    say(all(drive.store.get(task_id).id == task_id for task_id in acknowledged))
    say(len(drive.add_many(1)))


def refuse_slowly(home: str, what: str) -> None:
    """Refuse a file, but wait for the input's end between choosing its name and moving it there."""

    def slowly(path: str, data: bytes) -> None:
        if path.endswith(".error"):
            say("chosen")
            sys.stdin.read()
        write_atomically(path, data)

    vars(admit)["write_atomically"] = slowly
    refuse_one(home, what)


def refuse_one(home: str, what: str) -> None:
    """Refuse a file whose name others have as well."""
    place = Place(home)
    place.admission.admit([place.admission.lay("ann", "bad.yaml", f"nonsense: {what}".encode(), new_id(NOW))])


def _fill(drive: Driver, acknowledged: list[str]) -> None:
    for _ in range(1000):
        acknowledged += drive.add_many(20)


def read_only_disk(folder: str) -> None:
    """Open a store, and write to one that is open, on a disk that has become read-only."""
    _mount(folder, "size=8m")
    path = os.path.join(folder, "queue.db")
    drive = Driver(open_store(path))
    drive.add()
    drive.store.close()
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    _tell(lambda: open_store(path).count_active())
    _tell(lambda: Driver(open_store(path)).add())


def _mount(folder: str, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)


def _tell(work: Callable[[], object]) -> None:
    """Say the name of the error that comes of it, or that none did."""
    try:
        work()
    except FairleadError as error:
        say(type(error).__name__)
    else:
        say("nothing")


if __name__ == "__main__":
    main(globals())
