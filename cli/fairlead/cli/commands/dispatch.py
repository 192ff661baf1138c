"""fairlead dispatch."""

import os

from fairlead.base.logs import open_log
from fairlead.cli.access import open_instance
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.output import say
from fairlead.config.paths import find_paths
from fairlead.daemon.process import Daemon
from fairlead.queue.sqlite.overview import status
from fairlead.watchdog.process import WatchdogProcess

#: Ends are rung for; other things (files that settle, foreign locks, due times) are looked for this often.
LOOK_AGAIN = 0.5


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "dispatch",
        "Process the queue without long-running services, for timers and cron. --once: record what has ended, start"
        " what may start, return; agents go on. --until-empty: stay until nothing runs and nothing can start.",
        ["fairlead dispatch --once", "fairlead dispatch --until-empty"],
    )
    how = made.add_mutually_exclusive_group(required=True)
    how.add_argument("--once", action="store_true", help="one pass")
    how.add_argument("--until-empty", action="store_true", help="as many passes as it takes")
    return made


def main(words: list[str]) -> int:
    """One pass of dispatcher and watchdog, or as many as it takes."""
    args = make_parser().parse_args(words)
    open_instance().close()
    paths = find_paths()
    log = open_log(paths.log_file, "dispatch")
    watchdog, daemon = WatchdogProcess(paths, os.environ, log), Daemon(paths, os.environ, log)
    try:
        daemon.prepare()
        _one_pass(watchdog, daemon)
        while args.until_empty and not _is_done(watchdog, daemon):
            watchdog.waiter.wait(LOOK_AGAIN)
        data = status(daemon.instance.store.db)
    finally:
        daemon.close()
        watchdog.close()
    say(data, f"running: {data['active']['slots_used']}, waiting: {data['pending']['total']}", as_json=args.json)
    return 0


def _one_pass(watchdog: WatchdogProcess, daemon: Daemon) -> None:
    watchdog.watchdog.run_once()
    daemon.dispatcher.run_once()
    watchdog.watchdog.run_once()


def _is_done(watchdog: WatchdogProcess, daemon: Daemon) -> bool:
    """One more pass: it is done if nothing happens in it, nothing runs, and no file is still being written."""
    store, before = daemon.instance.store, daemon.instance.store.last_event()
    _one_pass(watchdog, daemon)
    is_quiet = store.last_event() == before and store.count_active() == 0
    return is_quiet and not (daemon.dispatcher.settling or daemon.dispatcher.waiting_names)
