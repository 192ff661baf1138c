"""Messages on a stream: whole or not at all, whoever sends them, however they come."""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from fairlead.base import frames
from fairlead.base.frames import BadFrameError, Frames

LIMIT = 1 << 20
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of a line."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def head(size: int) -> bytes:
    """What says how long a message is."""
    return struct.pack("!I", size)


def count_fds() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 70_000, bytes(range(256)) * 4000], ids=len)
def test_a_message_comes_as_it_was_sent(pair: Pair, data: bytes) -> None:
    """Whatever its length, also when no buffer holds it."""
    sender = threading.Thread(target=frames.send, args=(pair[0], data))
    sender.start()
    assert frames.receive(pair[1], LIMIT) == (data, [])
    sender.join()


def test_messages_may_come_in_any_pieces(pair: Pair) -> None:
    """Byte by byte, or several at once: each is handed out once, when it is complete."""
    whole = head(3) + b"one" + head(0) + head(5) + b"three"
    line, found = Frames(pair[1], LIMIT), []
    for byte in whole:
        pair[0].send(bytes([byte]))
        found += list(line.take())
    assert found == [b"one", b"", b"three"]
    pair[0].send(whole)
    assert list(line.take()) == [b"one", b"", b"three"]


def test_who_takes_one_message_leaves_the_others(pair: Pair) -> None:
    """Whoever stops in the middle, because of an error maybe, finds the rest with the next look."""
    pair[0].send(head(1) + b"a" + head(1) + b"b")
    line = Frames(pair[1], LIMIT)
    for data in line.take():
        assert data == b"a"
        break
    pair[0].send(head(1) + b"c")
    assert list(line.take()) == [b"b", b"c"]


def test_a_message_that_is_too_long_is_refused_before_it_comes(pair: Pair) -> None:
    """Its length alone says so: nothing is kept of it."""
    line = Frames(pair[1], LIMIT)
    pair[0].send(head(LIMIT + 1))
    with pytest.raises(BadFrameError, match=f"a message of {LIMIT + 1} bytes; at most {LIMIT}"):
        list(line.take())


def test_half_a_message_is_none(pair: Pair) -> None:
    """Whoever hangs up in the middle has said nothing."""
    pair[0].send(head(5) + b"thr")
    pair[0].close()
    with pytest.raises(ConnectionResetError, match="hung up"):
        frames.receive(pair[1], LIMIT)


def test_nothing_to_read_keeps_nobody(pair: Pair) -> None:
    """On a line that does not block, nothing is said at once to be there."""
    pair[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        list(Frames(pair[1], LIMIT).take())


def test_descriptors_come_with_their_message(pair: Pair) -> None:
    """They are the caller's, and nobody's whom he starts."""
    reader, writer = os.pipe()
    frames.send(pair[0], b"pipe", [reader, writer])
    data, fds = frames.receive(pair[1], LIMIT)
    assert data == b"pipe"
    assert [os.fstat(fd).st_ino for fd in fds] == [os.fstat(fd).st_ino for fd in (reader, writer)]
    assert not any(map(os.get_inheritable, fds))
    frames.close_all([*fds, reader, writer])


def test_descriptors_that_nobody_takes_are_closed(pair: Pair) -> None:
    """With half a message, too many, or one that is too long: none is left open."""
    before = count_fds()
    with open(os.devnull, "rb") as file:
        for data in (head(5) + b"x", head(LIMIT + 1)):
            socket.send_fds(pair[0], [data], [file.fileno()] * (frames.MOST_FDS + 4))
            line = Frames(pair[1], LIMIT)
            with suppress(BadFrameError):
                list(line.take())
            frames.close_all(line.take_fds())
        assert count_fds() == before + 1
    for message in (head(5) + b"x", head(LIMIT + 1)):
        ours, theirs = socket.socketpair()
        with closing(ours), open(os.devnull, "rb") as file:
            socket.send_fds(theirs, [message], [file.fileno()])
            theirs.close()
            with pytest.raises((ConnectionError, BadFrameError)):
                frames.receive(ours, LIMIT)
    assert count_fds() == before


def test_closing_a_line_closes_what_came_over_it() -> None:
    """Whoever is shown out in the middle of a message leaves nothing behind."""
    before = count_fds()
    ours, theirs = socket.socketpair()
    with open(os.devnull, "rb") as file:
        socket.send_fds(theirs, [head(9)], [file.fileno()])
    line = Frames(ours, LIMIT)
    list(line.take())
    line.close()
    theirs.close()
    assert count_fds() == before
