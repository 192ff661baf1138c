"""Connections: whose each is, by the kernel's word, how many a user may have, and when a silent one is closed."""

import asyncio
import json
import socket
import struct
from collections import Counter
from typing import Any, NamedTuple

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from fairlead.base.logs import Log

#: Connections of one user at a time; more are turned away.
PER_USER = 32
#: A connection on which nothing was asked, or whose answer was not taken, for so many seconds is closed.
SILENCE = 30.0
#: The longest line, and the longest header, of a request.
LINE = 8190
HEADERS = 64
_PEER = struct.Struct("3i")


class Peer(NamedTuple):
    """The process at the other end, as it was when it called."""

    pid: int
    uid: int
    gid: int


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """Who called."""
    end = transport.get_extra_info("socket")
    return Peer(*_PEER.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)))


def error_text(kind: str, message: str, exit_code: int) -> str:
    """An error as every answer has it; nothing in it that a terminal would obey."""
    return json.dumps({"error": {"kind": kind, "message": message, "exit_code": exit_code}})


_TOO_MANY = error_text("too_many", f"you have {PER_USER} connections already: close some, then try again.", 6)


class Connection(RequestHandler):
    """One connection; silent from its beginning, and after each answer, until something is asked."""

    __slots__ = ("handle", "peer", "server")

    def __init__(self, server: "Connections", **options: Any) -> None:  # noqa: ANN401 - aiohttp's
        super().__init__(server, **options)
        self.server = server
        self.peer: Peer | None = None
        self.handle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody calls."""
        super().connection_made(transport)
        peer = peer_of(transport)
        if self.server.counts[peer.uid] >= PER_USER:
            self.server.turn_away(peer, transport)
            return
        self.peer = peer
        self.server.counts[peer.uid] += 1
        self.begin_silence()

    def connection_lost(self, exc: BaseException | None) -> None:
        """He has hung up, or was hung up on."""
        self.end_silence()
        if self.peer is not None:
            self.server.leave(self.peer)
            self.peer = None
        super().connection_lost(exc)

    def begin_silence(self) -> None:
        """From now on something has to be asked in time, and what was answered to be taken."""
        self.end_silence()
        self.handle = asyncio.get_running_loop().call_later(self.server.silence, self._hang_up)

    def end_silence(self) -> None:
        """Something was asked: the answer is up to us."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def _hang_up(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP, or no header of ours, is refused as everything is."""
        del request, exc, message
        what = "this is not an HTTP/1.1 request that can be understood." if status < 500 else "something went wrong."  # noqa: PLR2004
        answer = web.Response(status=status, text=error_text("bad_request", what, 2), content_type="application/json")
        answer.force_close()
        return answer


class Connections(web.Server):
    """All connections."""

    def __init__(self, handler: Any, log: Log, silence: float = SILENCE) -> None:  # noqa: ANN401 - aiohttp's
        # No decompression: a few bytes could become many. Who hangs up is waited for no longer.
        limits: dict[str, Any] = {"auto_decompress": False, "access_log": None, "keepalive_timeout": silence}
        limits |= {"max_line_size": LINE, "max_field_size": LINE, "max_headers": HEADERS, "lingering_time": 1.0}
        super().__init__(handler, handler_cancellation=True, **limits)
        self.log = log
        self.silence = silence
        self.counts: Counter[int] = Counter()
        #: Calls of each user that are worked on.
        self.turns: dict[int, asyncio.Semaphore] = {}

    def __call__(self) -> Connection:
        """A new connection."""
        return Connection(self, loop=self._loop, **self._kwargs)

    def turn_away(self, peer: Peer, transport: asyncio.BaseTransport) -> None:
        """Answer once, without hearing the question."""
        self.log.warning("too_many_connections", uid=peer.uid, pid=peer.pid)
        if isinstance(transport, asyncio.WriteTransport):
            body = _TOO_MANY.encode()
            head = f"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            transport.write(f"{head}\r\nConnection: close\r\n\r\n".encode() + body)
            transport.close()

    def leave(self, peer: Peer) -> None:
        """A connection has ended."""
        self.counts[peer.uid] -= 1
        if not self.counts[peer.uid]:
            del self.counts[peer.uid]
            self.turns.pop(peer.uid, None)

    def turn(self, peer: Peer, most: int) -> asyncio.Semaphore:
        """What a user's calls wait for, so that his own wait for each other and not others for him."""
        return self.turns.setdefault(peer.uid, asyncio.Semaphore(most))
