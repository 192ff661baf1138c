"""fairlead show."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

from fairlead.base.durations import show_duration
from fairlead.base.text import visible
from fairlead.cli.access import reading
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.eventlines import words as words_of
from fairlead.cli.options import add_id
from fairlead.cli.output import fields, moment, paint, say, table
from fairlead.cli.usage import usage_words

_ATTEMPT = ("attempt", "status", "started", "finished", "exit", "error")


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "show",
        "Everything about one task, live or archived; of a running one also what it uses now.",
        ["fairlead show ID", "fairlead show ID --json | jq .events"],
    )
    add_id(made)
    return made


def main(words: list[str]) -> int:
    """Print everything about one task."""
    args = make_parser().parse_args(words)
    record = reading().show(args.id)
    text = "\n\n".join(_parts(record)) if "title" in record else _restricted(record)
    say(record, text, as_json=args.json)
    return 0


def _restricted(record: dict[str, Any]) -> str:
    """What everybody may know of anybody's task."""
    times = ("created", "not before", "started", "finished")
    keys = ("created_at", "run_at", "started_at", "finished_at")
    plain = [(name, record[name]) for name in ("id", "status", "user", "project", "priority", "attempt")]
    named = plain + [(name, moment(record[key])) for name, key in zip(times, keys, strict=True)]
    return f"{fields(named)}\n\nThe rest is for {record['user']}, members of the project, and admins."


def _parts(record: dict[str, Any]) -> Iterator[str]:
    """The sections of the page; empty ones are left out."""
    yield fields(_fields(record))
    for title, text in (("prompt", record["prompt"]), ("last words", record["log_tail"])):
        if text and text.strip():
            yield f"{title}:\n{_set_in(visible(text.rstrip()))}"
    if record["attempts"]:
        rows = [_attempt(attempt) for attempt in record["attempts"]]
        yield f"attempts:\n{_set_in(table(_ATTEMPT, rows, status=1))}"
    yield "events:\n" + _set_in("\n".join(map(_event, record["events"])))


def _fields(record: dict[str, Any]) -> list[tuple[str, Any]]:
    held = record["held"]
    return [
        ("id", record["id"]),
        ("title", record["title"]),
        ("status", _status(record)),
        ("error", record["error"]),
        ("user", record["user"]),
        ("project", record["project"]),
        ("directory", record["directory"]),
        ("agent", record["agent"]),
        ("action", record["action"] if record["action"] != record["agent"] else ""),
        ("priority", record["priority"]),
        ("command", shlex.join(record["command"])),
        ("payload", _json(record["payload"])),
        ("created", moment(record["created_at"])),
        ("not before", moment(record["run_at"])),
        ("started", moment(record["started_at"])),
        ("finished", moment(record["finished_at"])),
        ("uses", usage_words(record["usage"])),
        ("took", show_duration(held) if held else ""),
        ("exit code", record["exit_code"]),
        ("signal", record["signal"]),
        ("artifacts", ", ".join(record["artifacts"])),
        ("result", _json(record["result"])),
        ("cost", record["cost"]),
        ("from", record["source"]),
        ("files", record["run_dir"]),
    ]


def _status(record: dict[str, Any]) -> str:
    wish = f", {record['cancel']} asked it to stop" if record["cancel"] and not record["finished_at"] else ""
    return f"{record['status']}{wish}"


def _attempt(attempt: dict[str, Any]) -> tuple[object, ...]:
    end = attempt.get("signal") or attempt.get("exit_code")
    times = moment(attempt.get("started_at")), moment(attempt.get("finished_at"))
    return attempt["number"], attempt.get("status") or "running", *times, end, attempt.get("error")


def _event(event: dict[str, Any]) -> str:
    name = event["event"]
    line = f"{moment(event['timestamp'])}  {paint(name, name.replace('_', ' ').ljust(13))}  {words_of(name, event)}"
    return line.rstrip()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""


def _set_in(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
