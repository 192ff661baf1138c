"""Submissions while the store is away: the file itself is the acknowledgement, and intake takes it in later."""

import os
from collections.abc import Sequence

from fairlead.base.clock import Clock
from fairlead.base.files import make_directory, remove_all, write_durably
from fairlead.base.ids import new_id
from fairlead.config.paths import Paths
from fairlead.config.schema import Config
from fairlead.queue.admit import claimed_path
from fairlead.queue.instance import reserve_of
from fairlead.queue.operations import Submitted, check_submission
from fairlead.queue.room import refuse_shortage
from fairlead.queue.taskfile import Parsed


class Spooling:
    """Lays task files where intake finds them, without a store."""

    def __init__(self, paths: Paths, config: Config, clock: Clock, owner: str) -> None:
        self.paths = paths
        self.config = config
        self.clock = clock
        self.owner = owner

    def check(self, name: str, data: bytes) -> Parsed:
        """Read the file as intake would; raises with all that is wrong."""
        return check_submission(name, data, self.owner, self.config, self.paths, self.clock.wall_ms())

    def submit(self, files: Sequence[tuple[str, bytes]]) -> list[Submitted]:
        """Lay all files into the spool, durably, or none: wrong ones are refused first, on an error all go again."""
        refuse_shortage(self.paths.home, reserve_of(self.config))
        notes = [tuple(self.check(name, data).notes) for name, data in files]
        make_directory(self.paths.intake)
        laid: list[Submitted] = []
        try:
            for (name, data), more in zip(files, notes, strict=True):
                one = Submitted(id=new_id(self.clock.wall_ms()), name=os.path.basename(name), spooled=True, notes=more)
                laid.append(one)
                write_durably(self._path(one), data)
        except BaseException:
            remove_all(map(self._path, laid))
            raise
        return laid

    def _path(self, one: Submitted) -> str:
        return claimed_path(self.paths, one.id, self.owner, one.name)
