"""Paths: where an instance lives, without reading any file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.base.errors import UsageError
from fairlead.config.paths import Paths, find_paths


def test_one_directory_holds_everything() -> None:
    """FAIRLEAD_HOME is the home of all files of an instance, the configuration among them."""
    paths = find_paths({"FAIRLEAD_HOME": "/srv/queue", "HOME": "/home/alice", "XDG_STATE_HOME": "/state"})
    assert paths.home == "/srv/queue"
    assert paths.config_file == "/srv/queue/config.yaml"
    assert paths.config_folder == "/srv/queue/config.d"
    assert paths.store == "/srv/queue/queue.db"
    assert paths.bells == "/srv/queue/run/bells"
    assert paths.api == "/srv/queue/run/api.sock"
    assert all(value.startswith("/srv/queue") for name, value in vars(paths).items() if name != "kind")


def test_without_a_home_xdg_decides() -> None:
    """State and configuration are apart, where XDG's variables say or in its default places."""
    paths = find_paths({"HOME": "/home/alice"})
    assert paths.home == "/home/alice/.local/state/fairlead"
    assert paths.config_file == "/home/alice/.config/fairlead/config.yaml"
    assert paths.config_folder == "/home/alice/.config/fairlead/config.d"
    paths = find_paths({"HOME": "/home/alice", "XDG_STATE_HOME": "/state", "XDG_CONFIG_HOME": "/config"})
    assert paths.home == "/state/fairlead"
    assert paths.config_file == "/config/fairlead/config.yaml"


def test_a_relative_xdg_path_counts_as_none() -> None:
    """As XDG demands: the result must not depend on where a command is called."""
    paths = find_paths({"HOME": "/home/alice", "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config"})
    assert paths.home == "/home/alice/.local/state/fairlead"
    assert paths.config_file == "/home/alice/.config/fairlead/config.yaml"


@pytest.mark.parametrize("environ", [{"FAIRLEAD_HOME": "/srv/queue"}, {"HOME": "/home/alice"}])
def test_the_configuration_may_be_elsewhere(environ: dict[str, str]) -> None:
    """FAIRLEAD_CONFIG names the file; config.d is beside it."""
    paths = find_paths(environ | {"FAIRLEAD_CONFIG": "/etc/mine.yaml"})
    assert paths.config_file == "/etc/mine.yaml"
    assert paths.config_folder == "/etc/config.d"


def test_relative_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that changes its directory later still finds its files."""
    monkeypatch.chdir(tmp_path)
    paths = find_paths({"FAIRLEAD_HOME": "here", "FAIRLEAD_CONFIG": "mine.yaml"})
    assert paths.home == str(tmp_path / "here")
    assert paths.config_file == str(tmp_path / "mine.yaml")
    assert paths.config_folder == str(tmp_path / "config.d")


def test_empty_variables_count_as_unset() -> None:
    """As is usual with such variables."""
    empty = dict.fromkeys(("FAIRLEAD_HOME", "FAIRLEAD_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME"), "")
    paths = find_paths(empty | {"HOME": "/home/alice"})
    assert paths.home == "/home/alice/.local/state/fairlead"
    assert paths.config_file == "/home/alice/.config/fairlead/config.yaml"


def test_the_processs_own_environment_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks without an environment means the real one."""
    monkeypatch.setenv("FAIRLEAD_HOME", "/srv/queue")
    assert find_paths().home == "/srv/queue"


def test_without_home_the_password_file_knows() -> None:
    """HOME may be missing from a service's environment."""
    code = "from fairlead.config.paths import find_paths; print(find_paths().home)"
    found = subprocess.run([sys.executable, "-c", code], env={}, check=True, stdout=subprocess.PIPE, text=True)
    assert found.stdout.strip().endswith("/.local/state/fairlead")
    assert os.path.isabs(found.stdout)


def test_nowhere_to_live_is_said() -> None:
    """A home that is no place is refused with what to do about it."""
    with pytest.raises(UsageError, match="set FAIRLEAD_HOME"):
        find_paths({"HOME": "nowhere"})


def test_the_run_directory_may_be_elsewhere() -> None:
    """A system's instance keeps its bells and its processes' locks under /run."""
    paths = Paths("/var/lib/fairlead", run="/run/fairlead")
    assert paths.bells == "/run/fairlead/bells"
    assert paths.single_lock("daemon") == "/run/fairlead/daemon.lock"
    assert paths.single_lock("watchdog") == "/run/fairlead/watchdog.lock"


def test_the_systems_instance_is_where_services_belong() -> None:
    """Settings, state, spool, logs and sockets of the host's instance are where a system's services have them."""
    paths = find_paths({"FAIRLEAD_INSTANCE": "system", "HOME": "/home/alice"})
    assert paths.is_system
    assert paths.config_file == "/etc/fairlead/config.yaml"
    assert paths.store == "/var/lib/fairlead/queue.db"
    assert paths.spool == "/var/spool/fairlead"
    assert paths.log_file == "/var/log/fairlead/fairlead.log"
    assert paths.api == "/run/fairlead/api.sock"
    assert paths.intake == "/var/lib/fairlead/intake"
    assert paths.spool not in paths.directories()


def test_ones_own_instance_can_be_asked_for() -> None:
    """FAIRLEAD_INSTANCE says which of both is meant; FAIRLEAD_HOME says it more exactly; other words are refused."""
    assert find_paths({"FAIRLEAD_INSTANCE": "own", "HOME": "/home/alice"}).home == "/home/alice/.local/state/fairlead"
    assert not find_paths({"FAIRLEAD_INSTANCE": "system", "FAIRLEAD_HOME": "/srv/queue"}).is_system
    with pytest.raises(UsageError, match="must be own or system"):
        find_paths({"FAIRLEAD_INSTANCE": "mine", "HOME": "/home/alice"})


def test_an_instance_that_was_used_comes_before_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is said, it is one's own if that has a store, else the system's if that can be asked."""
    socket = tmp_path / "api.sock"
    monkeypatch.setattr("fairlead.config.paths.SYSTEM_RUN", str(tmp_path))
    env = {"HOME": str(tmp_path)}
    assert not find_paths(env).is_system
    socket.touch()
    assert find_paths(env).is_system
    assert find_paths({"HOME": "nowhere"}).is_system
    own = find_paths(env | {"FAIRLEAD_INSTANCE": "own"})
    os.makedirs(own.home)
    Path(own.store).touch()
    assert not find_paths(env).is_system


def test_every_directory_is_listed_after_its_parent() -> None:
    """They can be made in this order, and every file of an instance has its directory among them."""
    paths = Paths("/srv/queue")
    directories = paths.directories()
    for place, directory in enumerate(directories[1:], 1):
        assert os.path.dirname(directory) in directories[:place]
    no_files = ("config_folder", "kind")
    others = {key: value for key, value in vars(paths).items() if value not in directories and key not in no_files}
    assert {os.path.dirname(path) for path in others.values()} <= set(directories)


def test_the_systems_instance_may_lie_under_another_root() -> None:
    """For trying out: all of its paths, and no other instance's."""
    paths = find_paths({"FAIRLEAD_INSTANCE": "system", "FAIRLEAD_ROOT": "/srv/try"})
    places = (paths.home, paths.spool, paths.logs, paths.run, paths.config_file)
    assert places == tuple(
        f"/srv/try{one}"
        for one in (
            "/var/lib/fairlead",
            "/var/spool/fairlead",
            "/var/log/fairlead",
            "/run/fairlead",
            "/etc/fairlead/config.yaml",
        )
    )
    assert find_paths({"FAIRLEAD_HOME": "/srv/own", "FAIRLEAD_ROOT": "/srv/try"}).home == "/srv/own"
