"""The server among clients that mean no good, and under those who start and stop it."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.support.instance import FAIRLEAD, ROOT, Home
from tests.support.patience import PATIENCE, eventually
from tests.support.programs import command as program
from tests.web.calling import call, dialled, heard, held_lines, said_to
from tests.web.people import ANN, BOB, System
from tests.web.people import system_instance as other_instance

from fairlead.base.bell import is_heard
from fairlead.cli.remote import Remote
from fairlead.queue.locks import this_holder
from fairlead.web.connections import LINE, PER_USER

#: Hands a descriptor over as the third, to the process that it becomes.
AS_SYSTEMD = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""
GET = b"GET /api/v1/capacity HTTP/1.1\r\nHost: localhost\r\n"


def parsed(answer: bytes) -> tuple[bytes, dict[str, object]]:
    """An answer's status line and its error."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], json.loads(body)["error"]


# ---------------------------------------------------------------------- clients


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * (LINE + 1) + b"\r\n\r\n",
        b"GET /" + b"y" * (LINE + 1) + b" HTTP/1.1\r\n\r\n",
        b"POST /api/v1/tasks HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /api/v1/tasks HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=("zeros", "half", "tls", "headers", "header", "path", "length", "smuggling"),
)
def test_garbage_is_refused(api: Home, data: bytes) -> None:
    """As everything is: in JSON, once, and the next caller is served."""
    status, error = parsed(said_to(api.paths.api, data))
    assert status.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    assert error["kind"] == "bad_request"
    assert call(api.paths.api, "GET", "capacity").status == 200


def test_a_huge_body_is_not_taken(api: Home) -> None:
    """Neither one that is announced nor one that comes in pieces without an end."""
    endless = b"".join(b"%x\r\n%b\r\n" % (1 << 20, bytes(1 << 20)) for _ in range(17))
    for head, body in ((b"Content-Length: 99999999", bytes(17 << 20)), (b"Transfer-Encoding: chunked", endless)):
        with dialled(api.paths.api) as one:
            one.sendall(b"POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n")
            talker = threading.Thread(target=_talk, args=(one, body))
            talker.start()
            status, error = parsed(heard(one))
            talker.join()
        assert status == b"HTTP/1.1 413 Request Entity Too Large"
        assert error["message"] == "a request has at most 16 MiB."


def _talk(one: socket.socket, data: bytes) -> None:
    try:
        one.sendall(data)
    except OSError:
        return


def test_a_compressed_body_stays_small(api: Home) -> None:
    """What it would become is not asked."""
    import gzip  # noqa: PLC0415 - only for this

    bomb = gzip.compress(bytes(64 << 20))
    head = b"POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    head += b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    status, error = parsed(said_to(api.paths.api, head % len(bomb) + bomb))
    assert status == b"HTTP/1.1 400 Bad Request"
    assert "no JSON" in str(error["message"])


def test_slow_clients_are_hung_up_on(home: Home) -> None:
    """Whoever says nothing, says it slowly, or does not take his answers; not who waits to be told."""
    home.open()
    service = subprocess.Popen(program("web", "impatient", "0.4"), cwd=ROOT, env=home.environ)
    home.services.append(service)
    home.logged("api_starts")
    waits = dialled(home.paths.api)
    waits.sendall(b"GET /api/v1/events?wait=2&after=99 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    for said in (b"", b"GET /api", GET, b"POST /api/v1/tasks HTTP/1.1\r\n"):
        with dialled(home.paths.api) as one:
            one.sendall(said)
            begun = time.monotonic()
            assert _gone(one)
            assert time.monotonic() - begun < PATIENCE / 2
    with dialled(home.paths.api) as greedy:
        _talk(greedy, (GET + b"\r\n") * 200_000)
    assert heard(waits).startswith(b"HTTP/1.1 200 OK")
    assert call(home.paths.api, "GET", "capacity").status == 200


def test_a_client_that_was_hung_up_on_calls_again(home: Home) -> None:
    """Whoever holds a lock for long says nothing meanwhile, and still can let go of it."""
    home.open()
    home.services.append(subprocess.Popen(program("web", "impatient", "0.2"), cwd=ROOT, env=home.environ))
    home.logged("api_starts")
    remote = Remote(home.paths)
    lock = remote.try_lock("ann", this_holder())
    assert lock
    assert select.select([remote._connection.sock], [], [], PATIENCE)[0], "it is not hung up on"
    assert remote.let_go("ann", lock["lock_id"], this_holder()) == {"released": True}
    assert remote.status()["user_locks"]["active"] == 0
    remote.close()


def _gone(one: socket.socket) -> bool:
    try:
        return heard(one) == b""
    except ConnectionResetError:
        return True


def test_a_user_has_so_many_connections(api: Home) -> None:
    """One more is told so and turned away; as soon as one is free, the next is served."""
    with held_lines(api.paths.api, PER_USER):
        eventually(lambda: call(api.paths.api, "GET", "capacity").status == 429, "nobody is turned away")
        assert call(api.paths.api, "GET", "capacity").error == (
            "too_many",
            f"you have {PER_USER} connections already: close some, then try again.",
        )
    eventually(lambda: call(api.paths.api, "GET", "capacity").status == 200, "the places stay taken")


def test_two_hundred_idle_connections_keep_nobody_else_away() -> None:
    """Each user has places of his own."""
    with other_instance() as system:
        system.start()
        idle = (
            "import os, socket, sys\n"
            f"os.setresuid({BOB}, {BOB}, {BOB})\n"
            "lines = [socket.socket(socket.AF_UNIX) for _ in range(200)]\n"
            "for one in lines: one.connect(sys.argv[1])\n"
            "print('there', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", idle, system.paths.api], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as crowd:
            assert crowd.stdout
            assert crowd.stdout.readline() == b"there\n"
            assert system.json(ANN, "list") == []
            assert _refuses(system)
            crowd.communicate()
        eventually(lambda: system.json(BOB, "list") == [], "his places stay taken")


def _refuses(system: System) -> bool:
    return "you have 32 connections already" in system.refusal(BOB, "list", code=6)


# ---------------------------------------------------------------------- waiting


def test_who_waits_is_told_by_a_ring(api: Home) -> None:
    """Long before anybody would look again."""
    with dialled(api.paths.api) as one:
        one.sendall(b"GET /api/v1/events?wait=60 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        begun = time.monotonic()
        task = call(api.paths.api, "POST", "tasks", {"files": [{"name": "a.json", "content": '{"prompt": "x"}'}]})
        assert task.json["items"][0]["id"].encode() in heard(one)
        assert time.monotonic() - begun < 4.0


def test_a_bell_that_was_tidied_away_is_hung_up_anew(api: Home) -> None:
    """Without it every ring would be lost."""
    os.unlink(os.path.join(api.paths.bells, "api"))
    eventually(lambda: is_heard(api.paths.bells, "api"), "nobody hangs it up")


# ---------------------------------------------------------------------- starting and stopping


def test_it_stops_when_it_is_asked(api: Home) -> None:
    """Who waits is let go, the socket goes, and the next one can start."""
    waits = dialled(api.paths.api)
    waits.sendall(b"GET /api/v1/events?wait=60 HTTP/1.1\r\nHost: x\r\n\r\n")
    api.stop()
    assert [one.returncode for one in api.services] == [0]
    heard(waits)
    assert not os.path.exists(api.paths.api)
    assert api.log("api_stops")
    api.services.clear()
    api.start("api")


def test_a_dead_socket_is_replaced_and_a_living_one_respected(api: Home) -> None:
    """Killed, it leaves one behind; a second service beside it is refused."""
    second = subprocess.run([*FAIRLEAD, "api"], cwd=ROOT, env=api.environ, capture_output=True, text=True, check=False)
    assert (second.returncode, "the api runs already" in second.stderr) == (5, True)
    api.stop(number=signal.SIGKILL)
    assert os.path.exists(api.paths.api)
    api.services.clear()
    with socket.socket(socket.AF_UNIX) as stranger:
        os.unlink(api.paths.api)
        stranger.bind(api.paths.api)
        stranger.listen()
        third = subprocess.run(
            [*FAIRLEAD, "api"], cwd=ROOT, env=api.environ, capture_output=True, text=True, check=False
        )
        assert f"somebody answers at {api.paths.api} already" in third.stderr
    service = api.start("api")
    eventually(lambda: call(api.paths.api, "GET", "capacity").status == 200, "nobody answers")
    assert os.stat(api.paths.api).st_mode & 0o777 == 0o600
    assert service.poll() is None


def test_what_is_no_socket_is_left_alone(home: Home) -> None:
    """Somebody may need it."""
    os.makedirs(home.paths.run)
    Path(home.paths.api).write_text("mine", encoding="utf-8")
    wrong = subprocess.run([*FAIRLEAD, "api"], cwd=ROOT, env=home.environ, capture_output=True, text=True, check=False)
    assert "is there, and is no socket: remove it" in wrong.stderr
    assert Path(home.paths.api).read_text(encoding="utf-8") == "mine"


def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    """The kernel's field for it has 108 bytes."""
    home = Home(tmp_path / ("x" * 120) / "home")
    try:
        home.start("api")
        assert call(home.paths.api, "GET", "capacity").status == 200
    finally:
        home.clear()


def test_systemd_hands_the_socket_over(home: Home) -> None:
    """It is used as it is, and stays when the service goes; what is meant for another process is not taken."""
    os.makedirs(home.paths.run)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(home.paths.api)
        listening.listen()
        number = listening.fileno()
        command = [sys.executable, "-c", AS_SYSTEMD, str(number), *FAIRLEAD, "api"]
        service = subprocess.Popen(command, cwd=ROOT, env=home.environ, pass_fds=[number])
        home.services.append(service)
        assert call(home.paths.api, "GET", "capacity").status == 200
        home.stop()
        assert os.path.exists(home.paths.api)
        others = home.environ | {"LISTEN_PID": "1", "LISTEN_FDS": "1"}
        wrong = subprocess.run([*FAIRLEAD, "api"], cwd=ROOT, env=others, capture_output=True, text=True, check=False)
        assert "somebody answers at" in wrong.stderr


def test_without_a_store_it_refuses_to_start(home: Home) -> None:
    """An empty one beside accepted tasks would forget them."""
    home.submit()
    home.clear_opened()
    os.unlink(home.paths.store)
    wrong = subprocess.run([*FAIRLEAD, "api"], cwd=ROOT, env=home.environ, capture_output=True, text=True, check=False)
    assert (wrong.returncode, "fairlead rebuild" in wrong.stderr) == (5, True)
    assert not os.path.exists(home.paths.api)
