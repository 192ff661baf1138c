"""Calling the socket: as HTTP, or as bytes that are none."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any, NamedTuple

from tests.support.patience import PATIENCE


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.data)

    @property
    def error(self) -> tuple[str, str]:
        """An error's kind and sentence."""
        said = self.json["error"]
        assert set(said) == {"kind", "message", "exit_code"}
        return said["kind"], said["message"]


class _Connection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = dialled(self._path)


def dialled(path: str) -> socket.socket:
    """A connection on which nothing was said yet."""
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(PATIENCE)
    folder = os.open(os.path.dirname(path), os.O_PATH)
    try:
        one.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)
    return one


def call(path: str, method: str, target: str, body: object = None) -> Answer:
    """One request and its answer."""
    connection = _Connection(path)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, target if target.startswith("/") else f"/api/v1/{target}", data)
    answer = connection.getresponse()
    got = Answer(answer.status, dict(answer.headers), answer.read())
    connection.close()
    return got


def said_to(path: str, data: bytes) -> bytes:
    """All that is answered to these bytes, until the other side hangs up."""
    with dialled(path) as one:
        one.sendall(data)
        return heard(one)


def heard(one: socket.socket) -> bytes:
    """All that comes until the other side hangs up."""
    parts = []
    while part := one.recv(65536):
        parts.append(part)
    return b"".join(parts)


@contextmanager
def held_lines(path: str, count: int) -> Iterator[list[socket.socket]]:
    """So many connections on which nothing is said."""
    lines = [dialled(path) for _ in range(count)]
    try:
        yield lines
    finally:
        for one in lines:
            one.close()
