"""docs/coming-from.md has every name that a newcomer knows, and what it says of Fairlead is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "coming-from.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()

#: Every class, function, script, path, setting, field, command and test of the two designs.
ISOLATION = """
    per_user_queue_manager.py PerUserQueueManager acquire_lock user task_id timeout acquired lock_id
    execute_task release_lock /var/lib/luzia/locks/ user_alice.lock user_alice.json O_EXCL O_CREAT
    queue_controller_v2.py QueueControllerV2 QueueController enqueue project prompt priority position slots max
    used available by_project by_user conductor_lock_cleanup.py ConductorLockCleanup
    check_and_cleanup_conductor_locks cleanup_stale_task_locks max_age_seconds release_task_lock meta.json id
    status lock_released task_123_1768005905 task_id_timestamp running completed failed cancelled
    per_user_serialization.enabled per_user_serialization.lock_timeout_seconds get_queue_status pending.high
    pending.normal pending.total active.slots_used active.slots_max active.by_project active.by_user
    user_locks.active user_locks.details acquired_at acquired_by_pid expires_at list_locks check release
    cleanup_stale check_project cleanup_all_stale_locks /opt/server-agents/orchestrator
    tests/test_per_user_queue.py conductor_dir is_task_complete read_capacity has_capacity select_next_task
    dispatch poll_interval
"""
ISOLATION_PHRASES = (
    "Development",
    "Production",
    "Debugging",
    "Basic lock acquire/release",
    "Concurrent lock contention",
    "Stale lock cleanup",
    "Multiple user independence",
    "QueueControllerV2 integration",
    "Fair scheduling with locks",
    "Agent Crash",
    "Queue Daemon Crash",
    "Lock File Corruption",
    "0o644",
    "Lock Overhead",
    "Lock Duration",
    "Migration from Old System",
    "Per-project locks",
    "Priority-based waiting",
    "Task grouping",
    "Preemptive cancellation",
    "Lock analytics",
)
OVERNIGHT = """
    queue/api.py milton_queue queue_api enqueue_job job_type payload task priority run_at base_dir now STATE_DIR
    dequeue_ready_jobs mark_done artifact_paths result mark_failed error _queue_lock .queue.lock _next_job_id
    _write_job _locked_file _write_job_handle fcntl.LOCK_EX os.replace unlink queued in_progress completed
    failed tonight/ archive/ job-20260102-001 ~/.local/state/milton/ STATE_DIR/job_queue/
    STATE_DIR/logs/cortex/processor_YYYYMMDD_HHMMSS.log job_id type created_at started_at completed_at failed_at
    updated_at artifacts output output_paths evidence_refs events timestamp event enqueued claimed pid
    artifact_count scripts/job_processor.py milton-job-processor.timer milton-job-processor.service CORTEX
    process_overnight_job agents/cortex.py agents/contracts.py TaskResult TaskStatus.COMPLETED to_dict
    error_message tests/test_job_queue_concurrency.py test_concurrent_enqueue_no_collisions
    test_dequeue_exactly_once test_concurrent_dequeue_no_duplicates test_mark_done_archives_job
    test_idempotent_processing test_full_integration_20_jobs test_concurrent_jobs.py
"""
OVERNIGHT_PHRASES = (
    "systemctl --user enable",
    "systemctl --user start",
    "systemctl --user status",
    r"ps aux \| grep job_processor",
    "import fcntl",
    r"mount \| grep",
    "Jobs not being processed",
    "Jobs stuck in `in_progress`",
    "Job fails repeatedly",
    "Old jobs piling up in archive",
    "Concurrent job submissions causing errors",
    "LLM API timeout",
    "Task execution failed",
    "File not found",
    "`pytest tests/test_job_queue_concurrency.py -v`",
    "`pytest tests/test_job_queue_concurrency.py::test_full_integration_20_jobs -v`",
)

FIRST, SECOND = PAGE.split("## From an overnight job queue")
RIGHT = "\n".join(line.rsplit(" | ", 1)[-1] for line in PAGE.splitlines() if line.startswith("| "))


def code_of(text: str) -> str:
    """What stands between backticks, and names of tests, which stand without."""
    return "\n".join([*re.findall(r"`([^`]+)`", text), *re.findall(r"\btest_\w+", text)])


@pytest.mark.parametrize(("part", "names"), [(FIRST, ISOLATION), (SECOND, OVERNIGHT)])
def test_every_name_is_there(part: str, names: str) -> None:
    """Each as a word of its own, set as code: somebody who looks for it finds it."""
    code = code_of(part)
    assert [name for name in names.split() if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", code)] == []


@pytest.mark.parametrize(("part", "words"), [(FIRST, ISOLATION_PHRASES), (SECOND, OVERNIGHT_PHRASES)])
def test_every_phrase_is_there(part: str, words: tuple[str, ...]) -> None:
    """Commands, tests and problems that have several words."""
    assert [phrase for phrase in words if phrase not in part] == []


def test_every_command_exists() -> None:
    """The page names only commands and options that docs/commands.md has, which is generated from the code."""
    asked = re.findall(r"`fairlead ([^`]+)`", PAGE)
    assert len(asked) > 30
    for words in asked:
        name = " ".join(re.findall(r"^(?:lock )?\w+", words))
        section = re.search(rf"^## fairlead {name}$(.*?)(?=^## |\Z)", COMMANDS, re.MULTILINE | re.DOTALL)
        assert section, words
        for option in re.findall(r"(?<!\S)\[?(--?[a-z][a-z-]*)", words.partition(r"\|")[0]):
            assert f"`{option}`" in section[1] or f"`{option} " in section[1], words


def test_every_file_and_test_of_ours_exists() -> None:
    """Files of the source and tests, in the right-hand column, are there."""
    for path in re.findall(r"`((?:tests|queue|config|conductor|daemon|watchdog)/[\w./-]+)`", RIGHT):
        assert path.startswith("conductor/<") or (ROOT / path).exists(), path
    for path, names in re.findall(r"`(tests/[\w./]+\.py)`((?:,? test_\w+)*)", RIGHT):
        for name in re.findall(r"test_\w+", names):
            assert f"def {name}(" in (ROOT / path).read_text(), (path, name)
