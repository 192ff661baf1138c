"""How every command ends: exit codes, one sentence for what went wrong, and readers who leave."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import Run, process, shown, wait_waiting
from tests.support.instance import FAIRLEAD, ROOT, Home
from tests.support.patience import eventually

from fairlead.cli import main as cli

SCRIPT = Path(sys.executable).parent / "fairlead"


def buffered(home: Home) -> dict[str, str]:
    """An environment in which Python writes when it has to, as it usually does."""
    return {name: value for name, value in home.environ.items() if name != "PYTHONUNBUFFERED"}


def shell(home: Home, line: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of shell in which `$FAIRLEAD` is the command."""
    env = buffered(home) | {"FAIRLEAD": " ".join(FAIRLEAD)}
    return subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60
    )


def test_an_unknown_command_is_refused_with_the_near_miss(run: Run) -> None:
    """A typing error is answered with what was probably meant."""
    wrong = run.refusal("sttus", code=2)
    assert wrong == "there is no command 'sttus'; did you mean 'status'? `fairlead --help` lists them."
    assert run.refusal("xyzzy", code=2) == "there is no command 'xyzzy'; `fairlead --help` lists them."
    assert run.refusal("help", "xyzzy", code=2) == "there is no command 'xyzzy'; `fairlead --help` lists them."


def test_wrong_arguments_say_where_to_read_on(run: Run) -> None:
    """Unknown options and missing arguments exit with 2 and name the command's help."""
    assert run.refusal("list", "--frob", code=2) == "unrecognized arguments: --frob (`fairlead list --help` says more)"
    wrong = run.refusal("status", "--jsno", code=2)
    assert wrong == "unrecognized arguments: --jsno; did you mean '--json'? (`fairlead status --help` says more)"
    assert "argument --limit: 'abc' is not a whole number" in run.refusal("list", "--limit", "abc", code=2)
    assert "required: ID (`fairlead show --help` says more)" in run.refusal("show", code=2)


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["list"],
        ["show", "x"],
        ["logs", "x"],
        ["wait", "x"],
        ["why", "x"],
        ["cancel", "x"],
        ["retry", "x"],
        ["requeue", "x"],
        ["change", "x", "--title", "y"],
        ["pause"],
        ["resume"],
        ["drain"],
        ["locks"],
        ["capacity"],
        ["events"],
    ],
    ids=" ".join,
)
def test_without_an_instance_commands_say_how_to_get_one(run: Run, words: list[str]) -> None:
    """What reads or changes a queue exits with 6 where there is none, and makes none."""
    wrong = run.refusal(*words, code=6)
    assert wrong.startswith(f"there is no queue at {run.home.path} yet: `fairlead up` starts one there")
    assert not os.path.exists(run.home.paths.store)


def test_a_store_that_was_lost_is_not_called_new(run: Run) -> None:
    """Where tasks were accepted and the store is gone, commands point to `rebuild`."""
    run.home.submit()
    run.home.clear()
    os.unlink(run.home.paths.store)
    assert "there are 1 accepted tasks and 0 runs: `fairlead rebuild`" in run.refusal("status", code=5)
    assert "`fairlead rebuild`" in run.refusal("prune", code=5)
    assert "`fairlead rebuild`" in run("submit", "--prompt", "true").err


def test_a_file_in_the_place_of_the_home_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that is a file holds no queue, and none can be made there."""
    monkeypatch.setenv("FAIRLEAD_HOME", run.home.paths.config_file)
    advice = "set FAIRLEAD_HOME to a directory of yours"
    assert run.refusal("status", code=1) == f"{run.home.paths.config_file}/queue.db: Not a directory; {advice}."
    assert run.lines("doctor", code=1) == [f"fail  {run.home.paths.config_file}: Not a directory -> {advice}"]


def test_a_damaged_store_is_called_so(run: Run) -> None:
    """A file that is no database exits with 1 and the way out."""
    Path(run.home.paths.store).write_text("not a database, but long enough to look at" * 100, encoding="utf-8")
    assert "cannot be trusted" in run.refusal("status", code=1)


@pytest.mark.parametrize("way", [("-m",), ("script",)], ids=["module", "script"])
def test_both_ways_of_starting_it_work(home: Home, way: tuple[str]) -> None:
    """`python -m fairlead.cli.main` and the installed script are the same command."""
    if way == ("script",) and not SCRIPT.exists():
        pytest.skip("the package is not installed beside this interpreter")
    command = [str(SCRIPT)] if way == ("script",) else list(FAIRLEAD)
    done = subprocess.run([*command, "show"], cwd=ROOT, env=home.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_what_a_person_typed_is_spelled_out_in_errors(run: Run) -> None:
    """Control characters in an argument do not reach the terminal through the error."""
    run.home.open()
    assert "\x1b" not in run.refusal("show", "\x1b[2Jx", code=4)
    assert "\x1b" not in run.refusal("pause", "\x1b[2Jx", code=2)


# ---------------------------------------------------------------------- readers who leave


def test_a_reader_who_has_had_enough_is_no_error(home: Home) -> None:
    """`list --all | head -1` prints one line and no complaint, however much there is to print."""
    home.submit_all([home.document(title="x" * 200) for _ in range(500)])
    done = shell(home, "$FAIRLEAD list --all --limit 500 | head -1; echo ${PIPESTATUS[0]}")
    assert (done.stdout.splitlines()[1:], done.stderr) == (["0"], "")


def test_a_reader_who_left_before_the_first_word_is_no_error(home: Home) -> None:
    """Output that nobody ever reads is forgotten, also that of --help."""
    home.open()
    for words in ("status", "list --help", "--help"):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*FAIRLEAD, *words.split()],
            cwd=ROOT,
            env=buffered(home),
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (0, b""), words


def test_output_that_cannot_be_written_is_an_error(home: Home) -> None:
    """A full disk under the output exits with 1 and one sentence."""
    home.open()
    done = shell(home, "$FAIRLEAD list > /dev/full")
    assert (done.returncode, done.stderr) == (1, "fairlead: No space left on device.\n")


def test_a_closed_output_is_no_error(home: Home) -> None:
    """Who closes standard output wants the exit code alone."""
    home.submit()
    for words in ("list", "status", "doctor"):
        done = shell(home, f"$FAIRLEAD {words} >&-")
        assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "bell"), [(("events", "-f"), "events"), (("logs", "-f"), "logs"), (("wait",), "wait")], ids=str
)
def test_ctrl_c_ends_what_waits(home: Home, words: tuple[str, ...], bell: str) -> None:
    """An interrupted command exits with 130 and says nothing of Python."""
    task_id = home.submit(run_at="+1h")
    ids = () if bell == "events" else (task_id,)
    with process(home, *words, *ids) as one:
        wait_waiting(home, bell, one)
        one.send_signal(signal.SIGINT)
        _, err = one.communicate(timeout=60)
    assert one.returncode == 130
    assert "Traceback" not in err
    assert (f"the task goes on; `fairlead cancel {task_id}` stops it\n" in err) == (bell == "wait")


@pytest.mark.parametrize("words", [("events", "-f"), ("logs", "-f")], ids=" ".join)
def test_following_ends_with_its_reader(home: Home, words: tuple[str, ...]) -> None:
    """`events -f | head` does not linger until something happens again."""
    ids = () if words[0] == "events" else (home.submit(run_at="+1h"),)
    home.open()
    with process(home, *words, *ids) as one:
        wait_waiting(home, words[0], one)
        assert one.stdout
        one.stdout.close()
        eventually(lambda: one.poll() is not None, "it lingers")
        assert one.returncode == 0


# ---------------------------------------------------------------------- no permission


@pytest.fixture
def public_place() -> Iterator[Home]:
    """An instance in a directory that everybody may pass through."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)  # noqa: S103 - that is the point
        home = Home(Path(folder, "home"))
        home.path.chmod(0o700)
        yield home
        home.clear()


def as_nobody(home: Home, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as a user to whom the instance does not belong; skips where that cannot be done."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become somebody else")
    become = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    # Nobody may not write down what was covered.
    env = {name: value for name, value in home.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run([*become, *FAIRLEAD, *words], cwd="/", env=env, capture_output=True, text=True, check=False)
    if "No module named" in done.stderr or done.returncode in (126, 127):
        pytest.skip("the interpreter is not for everybody here")
    return done


@pytest.mark.parametrize(
    "words", [("status",), ("pause",), ("daemon",), ("lock", "hold", "ann", "--", "true")], ids=str
)
def test_somebody_elses_instance_is_refused_in_one_sentence(public_place: Home, words: tuple[str, ...]) -> None:
    """Without permission a command names the file and another way, not a line of Python."""
    public_place.submit()
    done = as_nobody(public_place, *words)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("fairlead: ")
    assert "ermission denied" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("mode", [0o700, 0o755], ids=oct)
def test_doctor_says_that_the_instance_is_somebody_elses(public_place: Home, mode: int) -> None:
    """Nothing else can be looked at, or mended, before that."""
    public_place.path.chmod(mode)
    done = as_nobody(public_place, "doctor")
    assert done.returncode == 1
    assert done.stdout == f"fail  {public_place.path}: Permission denied -> set FAIRLEAD_HOME to a directory of yours\n"


def test_a_home_that_cannot_be_made_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no directory can be made, the command says which, and what to do."""
    monkeypatch.setenv("FAIRLEAD_HOME", "/proc/nowhere")
    wrong = "/proc/nowhere: No such file or directory; set FAIRLEAD_HOME to a directory of yours."
    assert run.refusal("submit", "--prompt", "true", code=1) == wrong


def test_a_file_elsewhere_is_no_reason_to_move_the_home(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advice about the home is for what lies in it, or on the way to it."""

    def refuse(_: list[str]) -> int:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/elsewhere/file")

    monkeypatch.setattr(cli, "load", lambda _: refuse)
    assert run.refusal("status", code=1) == "/elsewhere/file: No such file or directory."


# ---------------------------------------------------------------------- on a terminal


def test_colours_are_for_terminals_that_want_them(home: Home) -> None:
    """A terminal gets colours, unless NO_COLOR or a dumb terminal asks for none; a pipe gets none."""
    home.open()
    code = 1  # the services do not run
    assert "\x1b[32mok  \x1b[0m  the store is sound" in shown(home, "doctor", code=code)
    assert "\x1b" not in shown(home, "doctor", code=code, NO_COLOR="1")
    assert "\x1b" not in shown(home, "doctor", code=code, TERM="dumb")
    assert "\x1b" not in home.cli("doctor", code=code).stdout


def test_columns_fit_the_terminal(home: Home) -> None:
    """The last column is cut to the width of the terminal, and whole in a pipe."""
    home.submit(title="a title that goes on and on" * 5)
    narrow = shown(home, "list", columns=100).splitlines()
    assert max(map(len, narrow)) == 100
    assert narrow[1].endswith("…")
    assert "a title that goes on and on" * 5 in home.cli("list").stdout
    assert "a title that go…" in shown(home, "list", columns=20)


def test_a_system_error_without_a_file_is_still_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the system refuses is told in its own words."""

    def refuse(_: list[str]) -> int:
        raise OSError("the moon is in the way")

    monkeypatch.setattr(cli, "load", lambda _: refuse)
    assert run.refusal("status", code=1) == "the moon is in the way."
