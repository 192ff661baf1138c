"""Files that become something else while they are read: a hundred thousand exchanges."""

import pytest
from tests.attacks.siege import SPOOLS, Siege
from tests.support.booted.host import PYTHON
from tests.support.patience import eventually

FLIPS = 100_000
#: Exchanges every name in the folders that ends in .yaml, .json or .txt with an evil twin, again and again.
FLIPPER = """
import ctypes, os, sys
flips, target, *folders = sys.argv[1:]
renameat2 = ctypes.CDLL(None).renameat2
HERE, EXCHANGE = -100, 2
evil = os.path.expanduser("~/.evil")
def twin():
    if os.path.lexists(evil):
        return
    if target == "fifo":
        os.mkfifo(evil)
    elif target == "folder":
        os.mkdir(evil)
    else:
        os.symlink(target, evil)
done = seen = 0
print("flipping", flush=True)
while done < int(flips):
    for folder in folders:
        try:
            found = [one for one in os.listdir(folder) if one.endswith((".yaml", ".json", ".txt"))]
        except OSError:
            continue
        for name in found:
            path = os.path.join(folder, name).encode()
            for _ in range(500):
                twin()
                if renameat2(HERE, evil.encode(), HERE, path, EXCHANGE):
                    break
                done += 1
    seen += 1
    if seen % 1000 == 0 and os.path.exists(os.path.expanduser("~/enough")):
        break
print(done)
"""
TARGETS = ["/root/canary", "/etc/canary", "/home/alice/canary", "fifo", "folder"]


@pytest.mark.parametrize("target", TARGETS)
def test_files_that_are_exchanged_while_they_are_taken_in(target: str, siege: Siege, mallory: str) -> None:
    """Each is taken as what it was at one moment, or refused: a file's own content, or nothing."""
    spool = f"{SPOOLS}/{mallory}"
    folders = (spool, f"{spool}/.intake", f"{spool}/rejected")
    with siege.start(mallory, PYTHON, "-c", FLIPPER, FLIPS // len(TARGETS), target, *folders) as flipper:
        assert flipper.stdout
        assert flipper.stdout.readline() == "flipping\n"
        number = 0
        while flipper.poll() is None:
            script = 'cd "$1"; for n in 1 2 3 4 5 6 7 8; do echo "prompt: true" >.new; mv -T .new swap$2$n.yaml; done'
            siege.do(mallory, "/bin/sh", "-c", script, "sh", spool, number, check=False)
            number += 1
        flips = flipper.stdout.read()
    assert int(flips) >= FLIPS // len(TARGETS)
    assert siege.sh(mallory, "cat canary || true") == ""


@pytest.mark.parametrize("target", TARGETS)
def test_results_that_are_exchanged_while_they_are_read(target: str, siege: Siege, mallory: str) -> None:
    """A result is what its file held, or it is left aside."""
    spool = f"{SPOOLS}/{mallory}"
    titles = [siege.task(mallory, f"echo '[{number}]' > $FAIRLEAD_RESULT; sleep 0.05") for number in range(4)]
    with siege.start(mallory, "/bin/sh", "-c", _FOLLOW, "sh", PYTHON, FLIPPER, target, f"{spool}/.runs") as flipper:
        records = [siege.record(title) for title in titles]
        siege.sh(mallory, "touch enough")
        eventually(lambda: flipper.poll() is not None, "the flipper does not end")
    assert all(record["result"] in (None, [number]) for number, record in enumerate(records))


#: Lets the flipper work in every drop-off that there is.
_FOLLOW = """
until [ -e ~/enough ]; do
    for folder in "$4"/*; do
        [ -d "$folder" ] && "$1" -c "$2" 2000 "$3" "$folder"
    done
done
"""
