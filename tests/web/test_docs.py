"""docs/api.md: what it prints runs as printed."""

import re
import shlex
import subprocess
from pathlib import Path

from tests.support.instance import ROOT, Home
from tests.support.packages import need

from fairlead.web.answering import BODY, TURNS
from fairlead.web.connections import PER_USER, SILENCE
from fairlead.web.schemas import LONGEST_WAIT

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_the_examples_run_as_printed(api: Home) -> None:
    """All of them, one after the other, against a service; only the socket is elsewhere."""
    need("curl")
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    script = script.replace("/run/fairlead/api.sock", shlex.quote(api.paths.api))
    done = subprocess.run(
        ["sh", "-eux", "-c", script], env=api.environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"title": "Hello"' in done.stdout
    [task] = api.tasks()
    assert (task.priority, task.version) == ("high", 4)


def test_the_numbers_are_those_of_the_code() -> None:
    """Limits that are named, and the file."""
    assert f"({BODY >> 20} MiB)" in PAGE
    assert f"you have {PER_USER} connections" in PAGE
    assert f"for {SILENCE:g} seconds" in PAGE
    assert f"{LONGEST_WAIT:g} at most" in PAGE
    assert (TURNS, "two are worked on at a time" in PAGE) == (2, True)
    assert Path(ROOT, "web/fairlead/web/openapi.json").exists()
