"""fairlead install."""

import os

from fairlead.cli.arguments import Parser, parser
from fairlead.cli.installing import add_scope, extras, places_for
from fairlead.cli.output import note, print_json
from fairlead.systemd.install import Installation, Plan
from fairlead.systemd.manifest import Deed
from fairlead.systemd.places import Scope


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "install",
        "Put services, completion, man pages and settings in place, for the whole system or for you alone. What is"
        " there already and was changed stays. Done again after an upgrade, it starts the services anew; agents go on."
        " With DESTDIR in the environment files are written below it, and nothing else is done.",
        ["fairlead install --enable", "fairlead install --user --enable", "fairlead install --system --dry-run"],
    )
    add_scope(made)
    made.add_argument("--enable", action="store_true", help="start everything, now and at every boot")
    made.add_argument("--force", action="store_true", help="replace files that were changed by hand; never settings")
    made.add_argument("--dry-run", action="store_true", help="only tell")
    return made


def main(words: list[str]) -> int:
    """Install, and say what was done about each file."""
    args = make_parser().parse_args(words)
    places = places_for(args)
    installation = Installation(places, extras(places))
    installation.check()
    plan = installation.plan(force=args.force)
    if not args.json:
        for step, _ in plan:
            print(step)
    done = [] if args.dry_run else _carry_out(installation, plan, enable=args.enable)
    if args.json:
        print_json({"dry_run": args.dry_run, "files": [step.row() for step, _ in plan], "done": done})
    else:
        print("\n".join(["nothing was changed: this was a dry run"] if args.dry_run else done or [_next(installation)]))
    return 0


def _carry_out(installation: Installation, plan: Plan, *, enable: bool) -> list[str]:
    installation.carry_out(plan)
    if installation.is_staged:
        return [f"everything is below {installation.places.root}"]
    done = installation.start(plan, enable=enable)
    if installation.places.scope is Scope.USER and not installation.lingers:
        note(
            "your services end when you log out, and start when you log in; `loginctl enable-linger` lets them"
            " run from boot on."
        )
    if any(step.deed is Deed.KEEP and step.why != "your settings" for step, _ in plan):
        note("some files were changed by hand and left as they are, see above.")
    return done


def _next(installation: Installation) -> str:
    """What a person does now."""
    user = "" if installation.places.scope is Scope.SYSTEM else "--user "
    sudo = "" if os.geteuid() == 0 or user else "sudo "
    return f"installed; `{sudo}systemctl {user}enable --now fairlead.target` starts it"
