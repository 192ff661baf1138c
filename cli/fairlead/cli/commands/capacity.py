"""fairlead capacity."""

from fairlead.cli.arguments import open_connection, parser
from fairlead.cli.output import print_json, print_table
from fairlead.queue.sqlite.overview import capacity


def main(words: list[str]) -> int:
    """Print the slots and who uses them."""
    made = parser("capacity", "Slots and who uses them.", ["fairlead capacity", "fairlead capacity --json | jq .slots"])
    args = made.parse_args(words)
    db = open_connection()
    data = capacity(db)
    db.close()
    if args.json:
        print_json(data)
        return 0
    slots = data["slots"]
    print(f"{slots['used']} of {slots['max']} slots used, {slots['available']} free")
    for kind in ("user", "project"):
        if data[f"by_{kind}"]:
            print_table([kind, "running"], sorted(data[f"by_{kind}"].items()))
    return 0
