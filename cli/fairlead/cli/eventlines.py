"""What happened, in one line for people."""

from collections.abc import Callable, Mapping
from typing import Any

from fairlead.base.durations import show_duration
from fairlead.base.text import one_line
from fairlead.cli.output import moment, paint
from fairlead.queue.task import PRIORITIES

#: What is said of an event's details, in this order, before a sentence if there is one; the others are for programs.
_SAID: dict[str, Callable[[Any], str]] = {
    "scope": str,
    "lock": str,
    "file": str,
    "what": str,
    "title": lambda title: f"now called {title}",
    "priority": lambda rank: f"{PRIORITIES[rank]} priority",
    "run_at": lambda when: f"not before {moment(when)}",
    "attempt": lambda number: "" if number == 1 else f"attempt {number}",
    "by": lambda name: f"by {name}",
    "after": lambda status: f"after it {'was' if status in ('lost', 'cancelled') else 'had'} {status}",
}
_SENTENCES = ("error", "reason", "why")
_TITLE = 60
_LINE = 300


def line(event: Mapping[str, Any]) -> str:
    """Time, user, what, which task, and what else there is to say."""
    said, title = words(event["event"], event["detail"]), one_line(event["title"], _TITLE)
    between = "" if not (title and said) else " " if said.startswith("(") else ": "
    name = event["event"].replace("_", " ")
    rest = one_line(f"{title}{between}{said}  {event['task_id'] or ''}", _LINE).rstrip()
    clock = event["timestamp"][11:19]
    return f"{clock}  {one_line(event['user'] or '-'):<10}  {paint(event['event'], f'{name:<16}')}  {rest}"


def words(event: str, detail: Mapping[str, Any]) -> str:
    """What is worth saying of an event besides its name."""
    told = {
        key: value for key, value in detail.items() if value not in (None, "") and key not in _silent(event, detail)
    }
    between = ", " if event == "changed" else " "
    about = between.join(filter(None, (say(told[key]) for key, say in _SAID.items() if key in told)))
    sentence = "; ".join(_brief(str(told[key])) for key in _SENTENCES if key in told)
    took = f"({show_duration(told['held'])})" if "held" in told else ""
    return one_line(f"{': '.join(filter(None, (about, sentence)))} {took}".strip(), _LINE)


def _brief(sentence: str) -> str:
    """One line of what may be several: of a list of problems the first, and how many more there are."""
    head, *problems = sentence.splitlines() or [""]
    if not problems:
        return head
    name = head.rpartition(": ")[0] or head
    more = f" (and {len(problems) - 1} more, see {name}.error)" if len(problems) > 1 else ""
    return f"{name}: {problems[0].strip()}{more}"


def _silent(event: str, detail: Mapping[str, Any]) -> set[str]:
    """What goes without saying: the usual priority, a file that its error names, and words for machines."""
    error = str(detail.get("error", ""))
    silent = {
        "priority": event == "queued" and detail.get("priority") == PRIORITIES.index("medium"),
        "file": error.startswith(str(detail.get("file"))),
        "reason": event == "completed" or bool(error),
    }
    return {key for key, is_silent in silent.items() if is_silent}
