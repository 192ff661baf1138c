"""The supervisor and what its agent leaves: output, result, artifacts, whatever they are."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conductor.runs import Place, agent, ended, put, shell, text

from fairlead.conductor.meta import LIMIT, Meta, read_meta


def play_with_result(place: Place, result: bytes, **changes: Any) -> Meta:  # noqa: ANN401 - fields of Launch
    """A run whose result file is there before it starts: its agent need not write it."""
    run_dir = place.make(("/bin/true",), **changes)
    Path(run_dir, "result.json").write_bytes(result)
    return ended(run_dir, place.supervise(run_dir))


def test_a_result_is_taken_over(place: Place) -> None:
    """What the agent wrote as JSON is in meta.json, and its cost for the account."""
    meta = play_with_result(place, b'{"summary": "done", "cost": 1.25, "parts": [1, null, true]}')
    assert meta.result == {"summary": "done", "cost": 1.25, "parts": [1, None, True]}
    assert (meta.status, meta.error, meta.cost) == ("completed", "", 1.25)


@pytest.mark.parametrize(
    "result",
    [b"", b"{", b"NaN", b'{"a": Infinity}', b"1e999", b'"\xff"', b'"\\ud800"', b"[" * 100_000, b"[" * 40 + b"]" * 40],
    ids=["empty", "cut", "nan", "infinity", "too large a number", "not utf-8", "half a pair", "deep", "rather deep"],
)
def test_a_result_that_is_none_is_left_aside(place: Place, result: bytes) -> None:
    """The run has completed all the same; its error says why the result is missing."""
    meta = play_with_result(place, result)
    assert (meta.status, meta.result, meta.cost) == ("completed", None, None)
    assert meta.error.startswith("the agent's result file was left aside: ")


def test_a_result_may_be_so_large(place: Place) -> None:
    """At the limit it is taken, one byte beyond it is left aside."""
    assert play_with_result(place, b'"123456"', result_bytes=8).result == "123456"
    meta = play_with_result(place, b'"1234567"', result_bytes=8)
    assert meta.result is None
    assert "at most 8 are allowed" in meta.error


def test_no_result_makes_meta_unreadable(place: Place) -> None:
    """Whatever the settings allow, a result that meta.json could not hold is left aside."""
    meta = play_with_result(place, b'"%s"' % (b"x" * LIMIT), result_bytes=1 << 30)
    assert meta.result is None
    assert "are allowed" in meta.error


def test_a_deep_result_does_not_blow_meta_up(place: Place) -> None:
    """Many values far inside are written without indentation, which would make them many times as long."""
    result = b"[" * 31 + b"[" + b"1," * 200_000 + b"1]" + b"]" * 31
    run_dir = place.make(("/bin/true",))
    Path(run_dir, "result.json").write_bytes(result)
    assert ended(run_dir, place.supervise(run_dir)).result == json.loads(result)
    assert os.path.getsize(os.path.join(run_dir, "meta.json")) < 2 * len(result)


def test_a_result_behind_a_link_is_left_aside(place: Place) -> None:
    """A symbolic link is not followed: it could lead to what the agent may not read."""
    secret = place.path / "secret"
    secret.write_text('"secret"')
    run_dir = place.make(("/bin/true",))
    os.symlink(secret, os.path.join(run_dir, "result.json"))
    meta = ended(run_dir, place.supervise(run_dir))
    assert meta.result is None
    assert "symbolic link" in meta.error


@pytest.mark.parametrize("name", ["result.json", "progress", "stdout.log.tail", "stderr.log.tail"])
@pytest.mark.parametrize("kind", ["fifo", "directory", "socket", "link"])
def test_nothing_in_a_files_place_stops_the_supervisor(place: Place, name: str, kind: str) -> None:
    """A FIFO that nobody writes, a directory, a socket or a link in a file's place: the run ends as it should."""
    run_dir = place.make(shell("head -c 20000 /dev/zero; head -c 20000 /dev/zero >&2"), output_bytes=4096)
    put(kind, os.path.join(run_dir, name))
    meta = ended(run_dir, place.supervise(run_dir))
    assert (meta.status, meta.exit_code, meta.result) == ("completed", 0, None)
    assert os.path.getsize(os.path.join(run_dir, "stdout.log")) < 5000


@pytest.mark.parametrize("cost", ["-1", "true", '"2"', "null", "1" + "0" * 400, "[]"])
def test_a_cost_is_a_number(place: Place, cost: str) -> None:
    """Anything else in `cost` is no cost, and no reason to lose the result."""
    meta = play_with_result(place, b'{"cost": %s}' % cost.encode())
    assert (meta.status, meta.cost) == ("completed", None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(result=st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_whatever_the_result_the_end_is_written(place: Place, result: bytes) -> None:
    """For any bytes as a result the run has completed, with them or with a sentence why not."""
    meta = play_with_result(place, result)
    assert meta.status == "completed"
    assert meta.error or meta.result == json.loads(result)


# --- Output ---


def test_output_is_capped(place: Place) -> None:
    """Of a flood the first and the last half of the limit are kept, and a line says how much is missing."""
    run_dir, supervisor = place.begin(shell("seq 1 1000000; echo the end"), output_bytes=8192)
    ended(run_dir, supervisor)
    whole = "".join(f"{number}\n" for number in range(1, 1_000_001)) + "the end\n"
    missing = f"\n[fairlead: {len(whole) - 8192} bytes left out here]\n"
    assert text(run_dir, "stdout.log") == whole[:4096] + missing + whole[-4096:]
    assert sorted(os.listdir(run_dir)) == [
        "meta.json",
        "prompt.txt",
        "stderr.log",
        "stdout.log",
        "task.json",
    ]


def test_output_need_not_be_text(place: Place) -> None:
    """Bytes of any kind go through unchanged; as last words they are made readable."""
    run_dir, supervisor = place.begin(shell("printf '\\377\\000\\033[31mred'; exit 1"))
    meta = ended(run_dir, supervisor)
    assert Path(run_dir, "stdout.log").read_bytes() == b"\xff\0\x1b[31mred"
    assert meta.log_tail == "\ufffd\0\x1b[31mred"


def test_an_agent_may_close_its_output(place: Place) -> None:
    """An agent that closes stdout and stderr is looked after as before."""
    meta = place.play(shell("exec >&- 2>&-; sleep 0.2; exit 5"))
    assert meta.exit_code == 5


def test_progress_need_not_be_text(place: Place) -> None:
    """Whatever the agent writes as progress, heartbeats and end can be written."""
    run_dir = place.make(shell("sleep 0.3"))
    Path(run_dir, "progress").write_bytes(b"\xff" * 10_000 + b"\0")
    meta = ended(run_dir, place.supervise(run_dir))
    assert meta.heartbeat.seq > 0
    assert set(meta.progress) == {"\ufffd", "\0"}


# --- Artifacts ---


def test_artifacts_are_recorded(place: Place) -> None:
    """Files that the patterns name are in meta.json, by their path from the working directory."""
    script = "mkdir -p out/deep; touch out/a.txt out/b.log out/deep/c.txt .hidden"
    meta = place.play(shell(script), artifacts=("out/**/*.txt", ".h*", "nothing"))
    assert meta.artifacts == [".hidden", "out/a.txt", "out/deep/c.txt"]


def test_artifacts_of_any_name_are_recorded(place: Place) -> None:
    """A name that is no text is spelled out; the end can be written."""
    meta = place.play(agent("name_strangely"), artifacts=("*",))
    assert meta.artifacts == ["new\nline", "not\\xfftext", "ünï"]


def test_so_many_artifacts_are_recorded(place: Place) -> None:
    """Beyond the limit, artifacts are left out."""
    meta = place.play(shell("touch a b c d e"), artifacts=("*",), artifacts_max=3)
    assert len(meta.artifacts) == 3


def test_the_state_is_readable_for_people(place: Place) -> None:
    """A plain run's meta.json is indented, one value on a line."""
    run_dir, supervisor = place.begin(("/bin/true",))
    ended(run_dir, supervisor)
    assert '\n  "status": "completed",\n' in text(run_dir, "meta.json")
    assert read_meta(run_dir).ended
