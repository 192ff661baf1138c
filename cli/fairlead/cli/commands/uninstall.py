"""fairlead uninstall."""

import os
import sys

from fairlead.base.errors import RefusedError
from fairlead.cli.access import Access
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.installing import add_scope, places_for
from fairlead.cli.output import counted, print_json
from fairlead.cli.waiting import wait_until
from fairlead.config.paths import Paths
from fairlead.desk.desk import Desk
from fairlead.queue.rights import master
from fairlead.systemd.install import Installation
from fairlead.systemd.places import Scope

#: How long agents that were asked to stop are waited for, in seconds.
PATIENCE = 60.0


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "uninstall",
        "Stop the services and remove what `install` has put in place. Queue, spools, logs and settings stay, unless"
        " they are purged. Refused while agents run.",
        ["fairlead uninstall", "fairlead uninstall --user --dry-run", "fairlead uninstall --purge --yes"],
    )
    add_scope(made)
    made.add_argument("--purge", action="store_true", help="remove queue, spools, logs, settings and account, too")
    made.add_argument("--yes", action="store_true", help="do not ask before purging")
    made.add_argument("--force", action="store_true", help="end the agents that run")
    made.add_argument("--dry-run", action="store_true", help="only tell")
    return made


def main(words: list[str]) -> int:
    """Remove, and say what was done about each file."""
    args = make_parser().parse_args(words)
    installation = Installation(places_for(args))
    installation.check_removal()
    steps = installation.plan_removal(purge=args.purge)
    if not args.json:
        print("\n".join(map(str, steps)) or "nothing is installed")
    if not args.dry_run:
        if args.purge and not args.yes:
            _ask(installation)
        if not installation.is_staged:
            _stop(installation, force=args.force)
        installation.remove(steps)
    if args.json:
        print_json({"dry_run": args.dry_run, "files": [step.row() for step in steps]})
    return 0


def _ask(installation: Installation) -> None:
    """Let a person think twice."""
    everybodys = "everybody's tasks" if installation.places.scope is Scope.SYSTEM else "your tasks"
    if not sys.stdin.isatty():
        raise RefusedError(f"--purge removes {everybodys}, records and logs for good: say --yes if that is meant.")
    print(f"This removes {everybodys}, records and logs for good. Type 'purge' to go on: ", end="", flush=True)
    if sys.stdin.readline().strip() != "purge":
        raise RefusedError("nothing was removed.")


def _stop(installation: Installation, *, force: bool) -> None:
    """Stop everything, agents too if that is meant."""
    paths = installation.places.instance
    running = _running(paths)
    if running and not force:
        verb = "runs" if running == 1 else "run"
        raise RefusedError(
            f"{counted(running, 'agent')} {verb}: `fairlead drain` waits for their end, --force ends them now."
        )
    if running:
        installation.end_agents()
        desk = Desk(Access(paths), master(os.getuid()))
        wait_until(desk, "uninstall", lambda: not _running(paths), PATIENCE)
    installation.stop()


def _running(paths: Paths) -> int:
    """How many tasks are claimed or run."""
    return Access(paths).store.count_active() if os.path.exists(paths.store) else 0
