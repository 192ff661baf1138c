"""Agents of a shared host: each in a unit of its own, as its user, within its limits, gone when its run is over."""

import signal
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.support.booted.host import boot
from tests.support.booted.site import HOME, SPOOL, Site

MEMORY_HOG = "python3 -c 'hog = []\nwhile True: hog.append(bytearray(1 << 20))'"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A shared host with three users."""
    projects = {
        "small": {"path": "~", "sandbox": {"memory_max": "32M", "tasks_max": 20}},
        "slow": {"path": "~", "sandbox": {"cpu_quota": 0.2}},
        "closed": {
            "path": "~",
            "sandbox": {"protect_system": "strict", "network": False, "private_tmp": True, "no_new_privileges": True},
        },
    }
    with closing(boot()) as host:
        yield Site(host, "alice", "bob", "carol", slots={"max": 4}, projects=projects)


# --- As its user, with nothing of anybody else's ---


def test_a_dropped_file_runs_as_its_user_in_a_unit_of_its_own(site: Site) -> None:
    """The agent has its user's ids and groups, his home, three descriptors, and a control group of its own."""
    script = "id -un; id -gn; id -Gn; pwd; umask; cat /proc/self/cgroup; ls /proc/self/fd | wc -l"
    record = site.play("alice", "who am I", script)
    assert (record["status"], record["user"], record["exit_code"]) == ("completed", "alice", 0)
    name, group, groups, home, umask, *cgroups, fds = site.output("who am I").splitlines()
    assert (name, group, groups.split(), home) == ("alice", "alice", ["alice", "fairlead"], "/home/alice")
    assert umask == "0022"
    assert cgroups[-1].endswith(f"/fairlead.slice/fairlead-run-{record['id']}.1.service")
    assert fds == "4"  # three, and the one that lists them


def test_the_environment_is_that_of_a_login_and_nothing_else(site: Site) -> None:
    """HOME, USER, LOGNAME, SHELL and PATH are the user's; all else is the task's or Fairlead's."""
    value = "a \"b\" 'c' $HOME `id` \\ \t ü %n\nX=1"
    record = site.play("alice", "environment", "env -0", env={"STRANGE": value})
    env = dict(one.split("=", 1) for one in site.output("environment").split("\0") if one)
    own = {name for name in env if name.startswith("FAIRLEAD_")}
    assert {name: env[name] for name in ("HOME", "USER", "LOGNAME", "SHELL")} == {
        "HOME": "/home/alice",
        "USER": "alice",
        "LOGNAME": "alice",
        "SHELL": "/bin/sh",
    }
    assert env["STRANGE"] == value
    assert env["FAIRLEAD_TASK_ID"] == record["id"]
    assert set(env) - own <= {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "PWD", "STRANGE"}


def test_output_can_be_opened_anew(site: Site) -> None:
    """/dev/stdout and /dev/stderr work, although the pipes were made by somebody else."""
    site.play("alice", "reopened", "echo out >/dev/stdout; echo err >/dev/stderr")
    assert (site.output("reopened"), site.output("reopened", "stderr.log")) == ("out\n", "err\n")


def test_what_an_agent_leaves_is_picked_up(site: Site) -> None:
    """Result, progress and artifacts come from places that the agent's user owns."""
    script = (
        'mkdir -p out; touch out/a.txt; echo \'{"answer": 42}\' > "$FAIRLEAD_RESULT"; echo done > "$FAIRLEAD_PROGRESS"'
    )
    record = site.play("alice", "leaving", script, artifacts=["out/*"])
    assert (record["result"], record["artifacts"]) == ({"answer": 42}, ["out/a.txt"])
    assert not site.host.path(f"{SPOOL}/alice/.runs/{record['id']}.1").exists()


def test_a_user_cannot_speak_for_another(site: Site) -> None:
    """A file that names somebody else is refused where its author looks, and says why."""
    site.drop_text("bob", "forged.json", '{"prompt": "true", "user": "alice"}')
    text = site.wait(lambda: site.rejected("bob").get("forged.json"), "nothing is refused")
    assert "this is alice's, but bob submits it" in text


def test_what_cannot_be_started_is_said_in_words(site: Site) -> None:
    """A program that the user's PATH does not lead to fails with its name."""
    record = site.play("carol", "no program", command=["no-such-agent"])
    assert (record["status"], record["reason"]) == ("failed", "not_started")
    assert "no-such-agent" in record["error"]


# --- Within its limits ---


def test_running_out_of_memory_is_called_that(site: Site) -> None:
    """What the kernel ends for want of memory has failed: out of memory."""
    record = site.play("alice", "hungry", MEMORY_HOG, project="small")
    assert (record["status"], record["reason"], record["error"]) == ("failed", "oom", "out of memory")
    assert site.play("alice", "modest", "true", project="small")["status"] == "completed"


def test_a_fork_bomb_is_gone_before_the_next_task(site: Site) -> None:
    """It has as many processes as it may, and none is left when its user's next task starts."""
    bomb = "b() { b | b & }; i=0; while [ $i -lt 200 ]; do (sleep 60 &) 2>/dev/null; i=$((i+1)); done; b"
    site.drop("bob", "bomb", bomb, project="small", timeout=3)
    site.drop("bob", "after the bomb", "ps -o comm= -u bob", project="small")
    assert site.ended("bomb")["status"] in ("failed", "completed")
    assert site.ended("after the bomb")["status"] == "completed"
    assert set(site.output("after the bomb").split()) <= {"sh", "ps", "fairlead", "python3"}  # a clerk may be about


def test_a_daemon_is_gone_before_the_next_task(site: Site) -> None:
    """A process that left its session and closed everything ends with its run."""
    daemon = "setsid sh -c 'trap \"\" TERM HUP; (sleep 1000 & sleep 1000) </dev/null >/dev/null 2>&1' & sleep 0.2"
    assert site.play("bob", "daemon", daemon)["status"] == "completed"
    record = site.play("bob", "after the daemon", "pgrep -u bob sleep | wc -l")
    assert record["status"] == "completed"
    assert site.output("after the daemon").strip() == "0"


def test_processor_time_is_held_back(site: Site) -> None:
    """A fifth of a processor is a fifth: a busy loop of two seconds gets no more of it."""
    script = (
        "end=$(($(date +%s) + 2)); while [ $(date +%s) -lt $end ]; do :; done; cat /proc/self/cgroup >/dev/null; times"
    )
    record = site.play("carol", "slow", script, project="slow")
    assert record["status"] == "completed"
    own, children = site.output("slow").splitlines()[-2:]
    used = sum(_seconds(word) for word in (*own.split(), *children.split()))
    assert used < 0.2 * record["held"] + 0.3


def _seconds(text: str) -> float:
    minutes, _, seconds = text.rstrip("s").partition("m")
    return 60 * int(minutes) + float(seconds)


def test_a_closed_project_reaches_its_tree_and_nothing_else(site: Site) -> None:
    """Strictly protected, without network, with a /tmp of its own: its tree and its drop-off stay writable."""
    script = (
        "touch mine && echo tree; touch /var/tmp/x && echo own-tmp; touch /opt/x || echo no-opt;"
        'echo 1 > "$FAIRLEAD_RESULT" && echo drop-off; ls /sys/class/net; grep NoNewPrivs /proc/self/status'
    )
    site.play("carol", "closed", script, project="closed")
    lines = site.output("closed").split()
    assert lines == ["tree", "own-tmp", "no-opt", "drop-off", "lo", "NoNewPrivs:", "1"]
    assert not site.host.path("/var/tmp/x").exists()


# --- To its end, whatever dies ---


def test_a_cancelled_run_ends_with_all_of_its_unit(site: Site) -> None:
    """A time limit ends everything in the unit, deaf processes too."""
    record = site.play("alice", "too long", "trap '' TERM; sleep 1000 & sleep 1000", timeout=1)
    assert (record["status"], record["reason"]) == ("failed", "timeout")
    site.wait(lambda: not site.units(), "a unit is left")


def test_a_killed_supervisor_means_lost_and_nothing_runs_on(site: Site) -> None:
    """The watchdog ends the unit, and only then may the next task of that user start."""
    site.drop("alice", "orphaned", "sleep 1000")
    meta = site.running("orphaned")
    site.drop("alice", "after the orphan", "pgrep -u alice sleep | wc -l")
    site.host.direct("kill", "-9", meta["supervisor"]["pid"])
    assert site.ended("orphaned")["status"] == "lost"
    assert site.ended("after the orphan")["status"] == "completed"
    assert site.output("after the orphan").strip() == "0"


@pytest.mark.parametrize("service", ["daemon", "watchdog", "porter", "conductor"])
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_no_service_takes_agents_with_it(site: Site, service: str, how: str) -> None:
    """Restarted or killed in the middle of a run: the same agent goes on, and its end is recorded as it was."""
    title = f"{how} {service}"
    site.drop("carol", title, "until [ -e go ]; do sleep 0.05; done; rm go; echo $$; exit 7")
    pid = site.running(title)["pid"]
    before = site.pid(service)
    if how == "restart":
        site.host.systemctl("restart", f"fairlead-{service}.service")
    else:
        site.host.direct("kill", f"-{signal.SIGKILL}", before)
    site.wait(lambda: site.is_up(service) and site.pid(service) not in (0, before), f"{service} does not come back")
    site.host.run("touch", "/home/carol/go", user="carol")
    record = site.ended(title)
    assert (record["status"], record["exit_code"], record["attempt"]) == ("failed", 7, 1)
    assert site.output(title).split() == [str(pid)]


def test_nothing_of_a_hundred_runs_is_left(site: Site) -> None:
    """No unit, lock, run directory or drop-off, and no more processes than before."""
    text = '{"title": "many", "prompt": "true"}'
    script = 'for i in $(seq 100); do echo "$2" > "$1/.many-$i"; mv "$1/.many-$i" "$1/many-$i.json"; done'
    site.host.run("sh", "-c", script, "sh", f"{SPOOL}/bob", text, user="bob")
    site.wait(lambda: sum(one["title"] == "many" for one in site.records()) == 100, "not all end")
    site.wait_tidy()
    assert {one["status"] for one in site.records() if one["title"] == "many"} == {"completed"}


def test_the_state_is_the_services_alone(site: Site) -> None:
    """A user can look neither at the queue nor at runs, of others or his own, but for the locks."""
    for path in ("queue.db", "conductor", "archive", "accepted", "intake"):
        done = site.host.run("ls", f"{HOME}/{path}/.", user="alice", check=False)
        assert done.returncode != 0, path
    assert site.host.run("ls", f"{HOME}/locks", user="alice", check=False).returncode == 0
