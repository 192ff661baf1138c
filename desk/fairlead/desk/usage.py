"""What a run uses of the machine just now, for people who watch it."""

from typing import Any

from fairlead.base.identity import boot_id, is_alive
from fairlead.conductor.meta import CorruptMetaError, Supervisor, read_meta
from fairlead.conductor.prctl import has_moved_on
from fairlead.conductor.rundir import active_dir
from fairlead.config.paths import Paths
from fairlead.queue.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    import psutil


def living_supervisor(paths: Paths, task: Task) -> Supervisor | None:
    """The supervisor of a task's run, if it is alive and at it."""
    try:
        meta = read_meta(active_dir(paths.conductor, task.spec.project, task.id, task.attempt))
    except CorruptMetaError:
        return None
    if meta.supervisor is None or meta.boot_id != boot_id() or has_moved_on(meta.supervisor.pid, meta.lock_id):
        return None
    return meta.supervisor if is_alive(meta.supervisor.process) else None


def usage_of(supervisor: Supervisor) -> dict[str, Any] | None:
    """What the processes under a supervisor use now, and what those that ended have used; None if it has ended."""
    import psutil  # noqa: PLC0415 - only who looks at a running task should pay for it

    try:
        top = psutil.Process(supervisor.pid)
        processes = top.children(recursive=True)
        ended = top.cpu_times()
    except psutil.NoSuchProcess:
        return None
    if not is_alive(supervisor.process):  # or else these were the children of another one with its pid
        return None
    used = [one for process in processes if (one := _one(process))]
    used_by_ended = ended.children_user + ended.children_system - supervisor.used_before
    return {
        "processes": len(used),
        "memory_bytes": sum(memory for memory, _ in used),
        "cpu_seconds": round(used_by_ended + sum(cpu for _, cpu in used), 2),
    }


def _one(process: "psutil.Process") -> tuple[int, float] | None:
    """Resident memory and CPU time of one process and of its children that have ended; None if it has, too."""
    import psutil  # noqa: PLC0415 - see above

    try:
        return process.memory_info().rss, sum(process.cpu_times()[:4])
    except psutil.NoSuchProcess:
        return None
