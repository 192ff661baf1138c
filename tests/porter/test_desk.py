"""The porter's desk as a process: whom it serves, what it refuses, and that nobody keeps it from the others."""

import errno
import os
import pwd
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from tempfile import TemporaryFile

import pytest
from tests.support.patience import eventually
from tests.support.porters import USERS, RealPorter, as_user, ask, real_porter

from fairlead.base import frames
from fairlead.conductor import errands
from fairlead.conductor.porter import ClerkError, PorterError, run_errand
from fairlead.porter.desk import MOST_CLERKS
from fairlead.systemd.unit import Order

TAKE = errands.Take(10, 1 << 20, 1 << 16, 0.0)
HIRE = errands.encode(errands.Hire("bin"))


def order(name: str = "fairlead-run-x.1.service", user: str | None = "bin") -> bytes:
    """A request to start a unit."""
    return errands.encode(
        errands.StartUnit(Order(name=name, description="", argv=("/bin/true",), cwd="/", env={}, user=user))
    )


def is_served(porter: RealPorter) -> bool:
    """Whether somebody else gets what he asks for."""
    return isinstance(porter.run("bin", errands.Settle([], {}))[0], errands.Fine)


@pytest.fixture
def line(porter: RealPorter) -> Iterator[socket.socket]:
    """A bare line to it."""
    with closing(porter.connect()) as line:
        yield line


# --- Clerks ---


def test_each_user_has_a_spool_and_a_clerk_of_his_own(porter: RealPorter) -> None:
    """The clerk takes what his user has dropped, as that user; nobody else's clerk comes near it."""
    for user in ("daemon", "bin"):
        porter.drop(user, "a.yaml", user.encode())
    for user in ("daemon", "bin"):
        [delivery] = porter.run(user, TAKE)
        assert isinstance(delivery, errands.Delivery)
        assert [file.data for file in delivery.files] == [user.encode()]
        claimed = porter.spool / user / ".intake" / f"{delivery.files[0].id}@a.yaml"
        assert claimed.parent.stat().st_uid == pwd.getpwnam(user).pw_uid
    assert as_user("bin", lambda: os.listdir(porter.spool / "daemon")) != 0


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("root", "root may not use this queue"),
        ("games", "games may not use this queue"),
        ("no-such-user", "the system knows no user 'no-such-user'"),
        ("", "the system knows no user ''"),
        ("../bin", "the system knows no user"),
        ("bin\0", "embedded null byte"),
        ("b" * 100_000, "the system knows no user"),
    ],
)
def test_nobody_becomes_whom_the_settings_do_not_name(porter: RealPorter, user: str, why: str) -> None:
    """Root under no circumstances; what is no user is said to be none."""
    porter.wait_clerks(0)
    with pytest.raises(PorterError, match=why):
        porter.client().hire(user)
    assert porter.clerks() == []
    assert is_served(porter)


def test_a_user_has_so_many_clerks_and_no_more(porter: RealPorter) -> None:
    """Whoever stops his own keeps nobody but himself from having one."""
    porter.wait_clerks(0)
    client = porter.client()
    with ExitStack() as lines:
        for _ in range(MOST_CLERKS):
            lines.enter_context(client.hire("bin"))
        for pid in porter.wait_clerks(MOST_CLERKS):
            os.kill(pid, signal.SIGSTOP)
        with pytest.raises(PorterError, match=f"{MOST_CLERKS} clerks of bin are out already"):
            client.hire("bin")
        with client.hire("daemon") as line:
            assert run_errand(line, errands.Settle([], {}))[0] == errands.Fine()
    for pid in porter.clerks():
        os.kill(pid, signal.SIGKILL)
    porter.wait_clerks(0)
    assert is_served(porter)


def test_a_clerk_that_was_killed_is_missed_by_nobody_else(porter: RealPorter) -> None:
    """Whoever talked to him hears that he has gone; the next one comes at once."""
    with porter.client().hire("bin") as line:
        for pid in porter.wait_clerks(1):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(ClerkError, match="does not answer"):
            run_errand(line, TAKE)
    assert is_served(porter)


def test_clerks_outlive_whoever_hired_them_for_no_longer_than_their_line(porter: RealPorter) -> None:
    """Also when the desk never sees the other end of it."""
    client = porter.client()
    with client.hire("bin"):
        client.close()
        porter.wait_clerks(1)
    porter.wait_clerks(0)


# --- Strangers and nonsense ---


def test_strangers_are_shown_out() -> None:
    """Whoever has another uid than the services hears nothing, whatever he says, by the kernel's word."""
    with real_porter("bin", uid=pwd.getpwnam("daemon").pw_uid) as porter:

        def hire() -> None:
            with closing(porter.client()) as client:
                client.hire("bin").close()

        assert as_user("daemon", hire) == 0
        assert as_user("bin", hire) != 0
        assert as_user("nobody", hire) != 0
        eventually(lambda: porter.log().count('"refused"') == 2, "it is not logged who has come")
        hire()  # root may


@pytest.mark.parametrize("garbage", [b"", b"\xc1", b"\xff" * 1000, b"\x81\xa4type\xa4Nope", errands.encode(TAKE)])
def test_what_nobody_understands_is_answered_as_that(line: socket.socket, garbage: bytes) -> None:
    """The line stays."""
    for _ in range(2):
        answer = ask(line, garbage)
        assert isinstance(answer, errands.Failed)
        assert answer.kind == "refused"
    assert isinstance(ask(line, errands.encode(errands.MakeSpools())), errands.Names)


def test_half_a_message_keeps_nobody_waiting(porter: RealPorter, line: socket.socket) -> None:
    """Nor does one that is announced and never comes; the rest may come later."""
    whole = struct.pack("!I", len(HIRE)) + HIRE
    line.send(whole[:7])
    assert is_served(porter)
    line.send(whole[7:])
    answer = errands.decode_answer(frames.receive(line, errands.LONGEST)[0])
    assert answer == errands.Failed("refused", "a clerk needs one line to talk over.")


def test_whoever_says_too_much_is_shown_out(porter: RealPorter, line: socket.socket) -> None:
    """Before it has come."""
    line.send(struct.pack("!I", errands.LONGEST + 1) + b"x")
    with pytest.raises(ConnectionError):
        frames.receive(line, errands.LONGEST)
    assert is_served(porter)


def test_whoever_does_not_listen_is_shown_out(porter: RealPorter, line: socket.socket) -> None:
    """He keeps the others waiting for a moment and no longer."""
    line.setblocking(False)
    request = errands.encode(errands.MakeSpools())
    with suppress(BlockingIOError):
        while True:
            line.sendall(struct.pack("!I", len(request)) + request)
    assert is_served(porter)

    def is_out() -> bool:
        try:
            while line.recv(1 << 20):
                continue
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        return True

    eventually(is_out, "he is served for ever")
    assert is_served(porter)


@pytest.mark.parametrize("count", [0, 2, 8])
def test_a_clerk_needs_one_line(porter: RealPorter, line: socket.socket, count: int) -> None:
    """Without it, or with more, nobody is hired, and nothing is kept."""
    porter.wait_clerks(0)
    ask(line, errands.encode(errands.MakeSpools()))
    before = porter.fds()
    with TemporaryFile() as file:
        answer = ask(line, HIRE, (file.fileno(),) * count)
    assert answer == errands.Failed("refused", "a clerk needs one line to talk over.")
    assert porter.clerks() == []
    eventually(lambda: porter.fds() == before, "descriptors are left open")


def test_a_line_that_is_none_is_the_clerks_trouble(porter: RealPorter, line: socket.socket) -> None:
    """He goes; the desk serves on."""
    with TemporaryFile() as file:
        assert ask(line, HIRE, (file.fileno(),)) == errands.Done()
    porter.wait_clerks(0)
    assert is_served(porter)


def test_nothing_is_kept_of_those_who_have_gone(porter: RealPorter) -> None:
    """After so many of all kinds it has the descriptors that it had before."""
    assert is_served(porter)
    porter.wait_clerks(0)
    before = porter.fds()
    for number in range(30):
        with closing(porter.connect()) as line, TemporaryFile() as file:
            if number % 3 == 0:
                socket.send_fds(line, [b"\0\0\0\xffhalf"], [file.fileno()] * 8)
            elif number % 3 == 1:
                socket.send_fds(line, [b"\xff" * 10], [file.fileno()] * 8)
            else:
                ask(line, order(), (file.fileno(),) * 3)
        assert is_served(porter)
    eventually(lambda: porter.fds() == before, "descriptors are left open")


def test_without_descriptors_whoever_comes_waits_at_the_door(porter: RealPorter) -> None:
    """Those who are inside are served on, and he is let in when there is room."""
    assert is_served(porter)
    porter.wait_clerks(0)
    with closing(porter.connect()) as inside:
        ask(inside, errands.encode(errands.MakeSpools()))
        porter.allow_descriptors(3)
        with closing(porter.connect()) as outside:
            frames.send(outside, errands.encode(errands.MakeSpools()))
            outside.settimeout(0.3)
            with pytest.raises(TimeoutError):
                outside.recv(1)
            outside.settimeout(10.0)
            porter.allow_descriptors(1024)
            answer = errands.decode_answer(frames.receive(outside, errands.LONGEST)[0])
            assert isinstance(answer, errands.Names)
        assert isinstance(ask(inside, errands.encode(errands.MakeSpools())), errands.Names)


# --- Units ---


@pytest.mark.parametrize(
    "name",
    ["sshd.service", "fairlead-daemon.service", "fairlead-run-x.service", "fairlead-run-../x.1.service", "", "-"],
)
def test_no_unit_is_touched_but_those_of_agents(line: socket.socket, name: str) -> None:
    """Started, looked at, signalled, forgotten, fenced: none of it."""
    requests = [errands.AskState(name), errands.SignalUnit(name, 9), errands.ForgetUnit(name), errands.FenceUnit(name)]
    with TemporaryFile() as file:
        fds = (file.fileno(),) * 3
        answers = [*(ask(line, errands.encode(one)) for one in requests), ask(line, order(name), fds)]
    assert answers == [errands.Failed("refused", f"{name!r} is no unit of an agent.")] * 5


@pytest.mark.parametrize("user", [None, "root", "games", "no-such-user"])
def test_no_unit_is_started_for_whom_the_settings_do_not_name(line: socket.socket, user: str | None) -> None:
    """Nor for root, who is whom a unit without a user runs as."""
    with TemporaryFile() as file:
        answer = ask(line, order(user=user), (file.fileno(),) * 3)
    assert isinstance(answer, errands.Failed)
    assert answer.kind == "refused"


def owners(*fds: int) -> list[int]:
    """Whose these are."""
    return [os.fstat(fd).st_uid for fd in fds]


def test_output_is_given_to_the_user_and_nothing_else_is(line: socket.socket, tmp_path: Path) -> None:
    """Pipes without a name as output become his; files, FIFOs, sockets and directories never do, nor does any input."""
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    with ExitStack() as stack:
        pipes = [os.pipe() for _ in range(3)]
        for fd in (end for pipe in pipes for end in pipe):
            stack.callback(os.close, fd)
        others = [
            os.open(tmp_path / "file", os.O_RDWR),
            os.open(tmp_path / "fifo", os.O_RDWR),
            os.open(tmp_path, os.O_RDONLY),
        ]
        for fd in others:
            stack.callback(os.close, fd)
        ours, theirs = socket.socketpair()
        stack.enter_context(ours)
        stack.enter_context(theirs)
        everything = [*others, ours.fileno()]
        for fd in everything:
            ask(line, order(), (fd, fd, fd))
        assert owners(*everything) == [os.geteuid()] * len(everything)
        ask(line, order(), (pipes[0][0], pipes[1][1], pipes[2][1]))
        uid = pwd.getpwnam("bin").pw_uid
        assert owners(pipes[0][0], pipes[1][1], pipes[2][1]) == [os.geteuid(), uid, uid]


def test_without_systemd_that_is_what_is_said(line: socket.socket) -> None:
    """And no environment is left lying about."""
    if Path("/run/systemd/system").exists():
        pytest.skip("there is a systemd here")
    with TemporaryFile() as file:
        answers = [ask(line, order(), (file.fileno(),) * 3), ask(line, errands.encode(errands.ListUnits()))]
    assert [answer.kind for answer in answers if isinstance(answer, errands.Failed)] == ["no_manager"] * 2
    place = Path(line.getpeername()).parent
    assert os.listdir(place / "environments") == []


# --- Spools ---


@pytest.fixture
def own() -> Iterator[RealPorter]:
    """A porter for one test alone, which changes its spools."""
    with real_porter(*USERS) as porter:
        yield porter


def test_spools_are_made_for_those_who_may_use_the_queue(own: RealPorter) -> None:
    """Each is its user's, others cannot enter it; a user whom the system does not know has none, and stops nobody."""
    with real_porter("bin", "no-such-user", "root", "group:daemon", "group:no-such-group") as other:
        assert sorted(os.listdir(other.spool)) == ["bin", "daemon"]
        for user in ("bin", "daemon"):
            status = (other.spool / user).stat()
            assert (status.st_uid, status.st_mode & 0o777) == (pwd.getpwnam(user).pw_uid, 0o750)
    assert sorted(os.listdir(own.spool)) == ["bin", "daemon", "nobody"]


def test_a_spool_that_was_half_made_is_made_whole(own: RealPorter) -> None:
    """Whoever died between making it and giving it away has left it to his successor; what is there is kept."""
    path = own.spool / "bin"
    path.chmod(0o700)
    os.chown(path, 0, 0)
    assert own.client().make_spools() == ["bin", "daemon", "nobody"]
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (pwd.getpwnam("bin").pw_uid, 0o750)


def test_what_a_user_does_with_the_rights_of_his_spool_is_his_affair(own: RealPorter) -> None:
    """They are not put right against his will."""
    (own.spool / "bin").chmod(0o700)
    own.client().make_spools()
    assert (own.spool / "bin").stat().st_mode & 0o777 == 0o700


def test_something_else_in_a_spools_place_is_left_alone(own: RealPorter) -> None:
    """It is logged, and the others have theirs."""
    (own.spool / "bin").rmdir()
    (own.spool / "bin").symlink_to("/etc")
    assert own.client().make_spools() == ["daemon", "nobody"]
    assert Path("/etc").stat().st_uid == 0
    assert "no_spool" in own.log()
    assert os.strerror(errno.EEXIST) in own.log()
