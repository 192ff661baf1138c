"""fairlead dispatch."""

import os

from fairlead.base.logs import open_log
from fairlead.cli.access import open_instance
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json
from fairlead.cli.waiting import wait_until
from fairlead.config.paths import Paths, find_paths
from fairlead.daemon.process import Daemon
from fairlead.queue.sqlite.overview import capacity, status
from fairlead.watchdog.process import WatchdogProcess


def main(words: list[str]) -> int:
    """One pass of dispatcher and watchdog, or as many as it takes."""
    made = parser(
        "dispatch",
        "Process the queue without long-running services, for timers and cron. --once: record what has ended, start"
        " what may start, return; agents go on. --until-empty: stay until nothing is due and nothing runs.",
        ["fairlead dispatch --once", "fairlead dispatch --until-empty"],
    )
    how = made.add_mutually_exclusive_group(required=True)
    how.add_argument("--once", action="store_true", help="one pass")
    how.add_argument("--until-empty", action="store_true", help="as many passes as it takes")
    args = made.parse_args(words)
    open_instance().close()
    paths = find_paths()
    log = open_log(paths.log_file, "dispatch")
    watchdog, daemon = WatchdogProcess(paths, os.environ, log), Daemon(paths, os.environ, log)
    try:
        _work(paths, watchdog, daemon, until_empty=args.until_empty)
        data = status(daemon.instance.store.db)
    finally:
        daemon.close()
        watchdog.close()
    if args.json:
        print_json(data)
    else:
        print(f"{data['active']['slots_used']} run, {data['pending']['total']} wait")
    return 0


def _work(paths: Paths, watchdog: WatchdogProcess, daemon: Daemon, *, until_empty: bool) -> None:
    def one_pass() -> bool:
        watchdog.watchdog.run_once()
        daemon.dispatcher.run_once()
        watchdog.watchdog.run_once()
        return not until_empty or _is_empty(daemon)

    daemon.prepare()
    wait_until(paths.bells, "dispatch", one_pass)


def _is_empty(daemon: Daemon) -> bool:
    db = daemon.instance.store.db
    waits = status(db)["pending"]
    return bool(capacity(db)["slots"]["used"] == 0 and waits["total"] == waits["not_due"])
