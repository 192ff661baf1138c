"""Commands through the socket: what they print, and how they exit, is the same as at the store itself.

The tests of the commands are run once more, for a caller who may not open the store.
"""

from types import ModuleType

import pytest
from tests.cli import test_changing, test_locks, test_logs, test_pausing, test_reading, test_show, test_submit
from tests.cli.running import Run
from tests.support.instance import Home

from fairlead.cli import access
from fairlead.cli.commands import status, submit

MODULES = (test_changing, test_locks, test_logs, test_pausing, test_reading, test_show, test_submit)
#: Tests of what is not the same: settings that change while the service runs, and a store that is away.
OTHERWISE = frozenset(
    {
        "test_a_file_that_is_too_big_is_refused",
        "test_a_full_queue_refuses",
        "test_an_operators_task_is_express_while_it_is_critical",
        "test_options_make_a_task",
        "test_somebody_without_a_name_is_known_by_number",
        "test_while_there_is_no_store_the_file_waits_in_the_spool",
        "test_without_room_for_all_none_is_taken_in",
        "test_wrong_settings_hide_the_directory_alone",
    }
)


@pytest.fixture
def run(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `fairlead` in this process, which has to ask the service."""
    home.start("api")
    for module in (access, status, submit):
        monkeypatch.setattr(module, "is_direct", lambda _: False)
    return Run(home, capsys)


def _tests(module: ModuleType) -> dict[str, object]:
    """The tests that run commands in their own process."""
    found = {name: one for name, one in vars(module).items() if name.startswith("test_") and callable(one)}
    return {name: one for name, one in found.items() if "run" in one.__code__.co_varnames and name not in OTHERWISE}


for _module in MODULES:
    globals().update(_tests(_module))
