"""One request: who asks, what for, and the answer."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from aiohttp import web

from fairlead.base.errors import (
    FairleadError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UsageError,
    is_machine_trouble,
)
from fairlead.base.identity import boot_id, host, start_of
from fairlead.desk.desk import Desk
from fairlead.desk.output import Piece
from fairlead.queue.instance import Instance
from fairlead.queue.rights import ForbiddenError, caller_of, master
from fairlead.queue.store import Holder
from fairlead.web.connections import Connection, Connections, Peer, error_text
from fairlead.web.openapi import PATH as DOCUMENT
from fairlead.web.routes import PREFIX, ROUTES, Asked, Route, understood
from fairlead.web.workers import Workers

#: The largest body of a request.
BODY = 16 << 20
#: So long a body may take, in seconds.
BODY_TIME = 30.0
#: Calls of one user that are worked on at a time: the others of his wait for them, and nobody else does.
TURNS = 2
#: The status of an answer that says what is wrong; the first that fits.
_STATUSES = (
    (ForbiddenError, 403),
    (UsageError, 400),
    (NotFoundError, 404),
    (RefusedError, 409),
    (UnavailableError, 503),
    (FairleadError, 500),
)
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_DOCUMENT = f"{PREFIX}/openapi.json"


class HttpError(FairleadError):
    """Something about the request itself is wrong, for which HTTP has a status of its own."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.exit_code = UsageError.exit_code


class Match(NamedTuple):
    """An operation, and what its path names."""

    route: Route
    parts: dict[str, str]


def _unquoted(parts: dict[str, str]) -> dict[str, str]:
    """What the parts of a path mean; a slash in one is part of it."""
    return {name: unquote(part) for name, part in parts.items()}


class Question(NamedTuple):
    """A request, understood, and who asks."""

    route: Route
    parts: dict[str, str]
    query: Any
    body: Any
    peer: Peer

    def work(self, *, is_last: bool) -> Callable[[Instance], Any]:
        """What a worker does about it: the caller's roles are those of that moment."""

        def act(instance: Instance) -> Any:  # noqa: ANN401 - JSON
            peer = self.peer
            caller = caller_of(peer.uid, instance.config) if instance.paths.is_system else master(peer.uid)
            desk = Desk(instance, caller)
            return self.route.act(Asked(desk, self.parts, self.query, self.body, lambda: _holder(peer), is_last))

        return act


class Answering:
    """Answers requests."""

    def __init__(self, workers: Workers, rung: Callable[[], asyncio.Event], ring: Callable[[], None]) -> None:
        self.workers = workers
        #: Wakes those who wait: what was changed here is not always rung about.
        self.ring = ring
        #: The event that the next ring sets.
        self.rung = rung
        self.log = workers.log
        self._patterns = [(route, route.pattern) for route in ROUTES]
        with open(DOCUMENT, "rb") as file:
            self._document = file.read()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer, whatever happens."""
        connection = request.protocol
        if not isinstance(connection, Connection):
            raise TypeError("all connections are ours")
        connection.end_silence()
        try:
            return await self._answer(request, connection)
        except FairleadError as error:
            return _refusal(error)
        except OSError as error:
            self.log.error("api_trouble", error=str(error))
            is_passing = is_machine_trouble(error)
            what = "the machine has no room for this now; try again later." if is_passing else "something went wrong."
            return _json(503 if is_passing else 500, error_text("trouble", what, 6 if is_passing else 1))
        except Exception as error:  # noqa: BLE001 - a mistake of ours is one caller's trouble, and nobody else's
            self.log.error("api_failed", error=repr(error))
            return _json(500, error_text("trouble", "something went wrong; the service's log says what.", 1))
        finally:
            connection.begin_silence()

    async def _answer(self, request: web.BaseRequest, connection: Connection) -> web.StreamResponse:
        if (request.method, request.path) == ("GET", _DOCUMENT):
            return web.Response(body=self._document, content_type="application/json")
        route, parts = self._match(request.method, request.raw_path.partition("?")[0])
        query = understood(route.query, dict(request.query), "the query", strict=False)
        body = understood(route.body, await _body(request), "the body", strict=True) if route.body else None
        peer = connection.peer
        if peer is None:
            raise ConnectionResetError("he has hung up")
        answer = await self._ask(Question(route, parts, query, body, peer), connection.server)
        if route.method != "GET":
            self.ring()
        return _good(answer)

    def _match(self, method: str, path: str) -> Match:
        """The operation that is meant."""
        found = {
            route.method: Match(route, _unquoted(one.groupdict()))
            for route, pattern in self._patterns
            if (one := pattern.fullmatch(path))
        }
        if not found:
            raise HttpError(404, "no_such_path", f"there is nothing at this path; GET {_DOCUMENT} says what there is.")
        if method not in found:
            raise HttpError(405, "method_not_allowed", f"use {' or '.join(sorted(found))} here.")
        return found[method]

    async def _ask(self, question: Question, connections: Connections) -> Any:  # noqa: ANN401 - JSON
        """The answer; where somebody waits for something, once it is there or the time is up."""
        loop, route = asyncio.get_running_loop(), question.route
        deadline = loop.time() + max(getattr(question.query, "wait", 0.0), route.patience)
        turn = connections.turn(question.peer, TURNS)
        while True:
            rung, rest = self.rung(), deadline - loop.time()
            async with turn:
                answer = await self.workers.run(question.work(is_last=rest <= 0))
            if rest <= 0 or route.enough(answer):
                return answer
            await _at_most(rung.wait(), min(rest, route.look_again))


def _holder(peer: Peer) -> Holder:
    """The process that asks, as a holder of locks; it must be there to be known again."""
    start = start_of(peer.pid) if peer.pid > 0 else None
    if start is None:
        raise UsageError("the process that asked has ended, or cannot be seen from here: it cannot hold a lock.")
    return Holder(host=host(), boot_id=boot_id(), pid=peer.pid, start=start)


async def _at_most(what: Awaitable[object], seconds: float) -> None:
    try:
        await asyncio.wait_for(what, seconds)
    except TimeoutError:
        return


async def _body(request: web.BaseRequest) -> Any:  # noqa: ANN401 - JSON
    """The body, of a reasonable size and in reasonable time."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_TIME):
            while chunk := await request.content.readany():
                data += chunk
                if len(data) > BODY:
                    raise HttpError(413, "too_large", f"a request has at most {BODY >> 20} MiB.")
    except TimeoutError:
        raise HttpError(408, "too_slow", f"the body did not come within {BODY_TIME:g} s.") from None
    if not data:
        return {}
    try:
        return msgspec.json.decode(bytes(data))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(f"the body is no JSON: {error}") from None


# ---------------------------------------------------------------------- answers


def _good(answer: Any) -> web.Response:  # noqa: ANN401 - JSON, or a piece of output
    if isinstance(answer, Piece):
        told = {"Attempt": answer.attempt, "Next-Offset": answer.next, "Is-Over": str(answer.is_over).lower()}
        headers = {f"Fairlead-{name}": str(value) for name, value in told.items()} | _HEADERS
        return web.Response(body=answer.data, content_type="application/octet-stream", headers=headers)
    # Plain ASCII: nothing that a terminal would obey.
    return _json(200, json.dumps(answer))


_HEADERS = {"Cache-Control": "no-store", "Server": "fairlead", "X-Content-Type-Options": "nosniff"}


def _json(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n", content_type="application/json", headers=_HEADERS)


def _refusal(error: FairleadError) -> web.Response:
    if isinstance(error, HttpError):
        answer = _json(error.status, error_text(error.kind, str(error), error.exit_code))
        if error.status != 404:  # noqa: PLR2004 - the rest of a body that was not read would be taken for a request
            answer.force_close()
        return answer
    status = next(status for one, status in _STATUSES if isinstance(error, one))
    kind = _WORDS.sub("_", type(error).__name__.removesuffix("Error")).lower()
    known = {"task_file": "usage"}
    return _json(status, error_text(known.get(kind, kind), str(error), error.exit_code))
