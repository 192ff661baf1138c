"""What a run uses of the machine, in words."""

from typing import Any

from fairlead.base.durations import show_duration


def usage_words(usage: dict[str, Any] | None) -> str:
    """The same for people."""
    if not usage:
        return ""
    memory = f"{usage['memory_bytes'] / (1 << 20):.1f} MiB memory"
    processes = "1 process" if usage["processes"] == 1 else f"{usage['processes']} processes"
    return f"{processes}, {memory}, {show_duration(usage['cpu_seconds'])} CPU time"
