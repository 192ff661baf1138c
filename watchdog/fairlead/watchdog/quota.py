"""What the ended runs of each user hold on the disk: beyond `limits.run_bytes` the oldest of them go before their time.

Nothing that runs is touched: what one run may hold is limited by itself, and a user has one at a time. All runs are
looked at round after round, a portion with each look, so that ends are recorded in between however many there are.
"""

import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from fairlead.base.files import remove_tree
from fairlead.base.sizes import show_size
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.instance import Instance
from fairlead.watchdog.retention import finished_runs

#: Runs that are looked at with one look.
PORTION = 1000
_BLOCK = 512


class RunQuota:
    """Minds what users' runs hold."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._runs: Iterator[str] = iter(())
        #: What each user's runs hold, as far as this round has come.
        self._use: Counter[str] = Counter()
        #: What of it is to go, by the last round.
        self._excess: dict[str, int] = {}

    def look(self, portion: int = PORTION) -> None:
        """Look at the next runs; what was found to be too much goes, the oldest of a project first."""
        runs = list(islice(self._runs, portion))
        for run_dir in runs:
            self._look_at(run_dir)
        if len(runs) < portion:
            self._begin_anew()

    def _look_at(self, run_dir: str) -> None:
        user, size = self._owner(run_dir), size_of(run_dir)
        if self._excess.get(user, 0) > 0:
            remove_tree(run_dir)
            self._excess[user] -= size
        else:
            self._use[user] += size

    def _owner(self, run_dir: str) -> str:
        """Whose run it is; nobody's, and so never too much, until its task is archived."""
        try:
            task = self.instance.store.get(os.path.basename(run_dir).rpartition(".")[0])
        except NoSuchTaskError:
            return ""
        return task.spec.user if task.archived else ""

    def _begin_anew(self) -> None:
        """The round is over: who is over his limit, and by how much."""
        limit = self.instance.config.limits.run_bytes
        self._use.pop("", None)
        self._excess = {user: use - limit for user, use in self._use.items() if use > limit}
        for user in self._excess:
            what = (
                f"the ended runs of {user} hold {show_size(self._use[user])}, limits.run_bytes is {show_size(limit)}:"
                " the oldest are removed."
            )
            self.instance.log.warning("over_quota", user=user, error=what)
        self._use.clear()
        self._runs = finished_runs(self.instance.paths.conductor)


def size_of(folder: str) -> int:
    """What the files in a folder take up on the disk."""
    size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    except (FileNotFoundError, NotADirectoryError):
        pass  # pruned a moment ago
    return size
