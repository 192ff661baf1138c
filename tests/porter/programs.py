"""Porters as processes of their own: `python -m tests.porter.programs NAME ARGUMENT…`."""

import os
import resource
import select
import socket

from tests.support.programs import main, say

from fairlead.base import frames
from fairlead.base.logs import open_log
from fairlead.conductor import errands
from fairlead.config.schema import Config, Users
from fairlead.porter.clerk import Clerk
from fairlead.porter.desk import Desk
from fairlead.porter.spools import Spools
from fairlead.systemd.transient import TransientUnits


def desk(folder: str, path: str, uid: str, *users: str) -> None:
    """The porter's desk over spools of these users, serving whoever has that uid. Everybody can reach its door."""
    log = open_log(f"{folder}/log", "porter")
    spools = Spools(f"{folder}/spool", Config(users=Users(allow=users)), 0, log)
    environments = f"{folder}/environments"
    os.makedirs(environments, mode=0o700, exist_ok=True)
    spools.make()
    porter = Desk(_door(path), spools, TransientUnits("system", environments), int(uid), log)
    say("ready")
    porter.watch(0)
    while not _is_alone():
        porter.serve(0.05)


def own_clerks(spool: str, path: str) -> None:
    """A porter that becomes nobody: all he lends out are clerks that stay who they are."""
    door = _door(path)
    say("ready")
    while door.fileno() in select.select([door.fileno(), 0], [], [])[0]:
        line, _ = door.accept()
        if os.fork() == 0:
            door.close()
            _lend(line, spool)
            os._exit(0)
        line.close()


def _is_alone() -> bool:
    """Whether the test has gone: nobody would end us then."""
    return bool(select.select([0], [], [], 0)[0])


def _lend(line: socket.socket, spool: str) -> None:
    try:
        while True:
            data, fds = frames.receive(line, errands.LONGEST)
            request = errands.decode_request(data)
            if not isinstance(request, errands.Hire):
                frames.send(line, errands.encode(errands.Failed("refused", "clerks are all there is")))
            elif request.user == "stranger":
                frames.send(line, errands.encode(errands.Failed("refused", "stranger may not use this queue.")))
            else:
                _clerk(fds[0], spool)
                frames.send(line, errands.encode(errands.Done()))
            frames.close_all(fds)
    except ConnectionError:
        pass


def _clerk(fd: int, spool: str) -> None:
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        Clerk(spool).serve(socket.socket(fileno=fd))
        os._exit(0)


def _door(path: str) -> socket.socket:
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0)
    door.bind(path)
    os.umask(before)
    door.listen(64)
    return door


if __name__ == "__main__":
    main(globals())
