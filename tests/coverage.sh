#!/bin/sh
# The tests with branch coverage, in all processes they start. Everything: 90 %. What claims, locks, takes in,
# changes states and recovers: 100 %.
set -eu
bin=$1
cd "$(dirname "$0")/.."

rm -f .coverage .coverage.*
"$bin/coverage" run -m pytest -n auto -q
"$bin/coverage" combine --quiet
"$bin/coverage" report --skip-covered --fail-under=90

core='
queue/fairlead/queue/states.py
queue/fairlead/queue/claims.py
queue/fairlead/queue/locks.py
queue/fairlead/queue/lockfiles.py
queue/fairlead/queue/admit.py
queue/fairlead/queue/sqlite/admission.py
queue/fairlead/queue/sqlite/base.py
queue/fairlead/queue/sqlite/claiming.py
queue/fairlead/queue/sqlite/locking.py
conductor/fairlead/conductor/liveness.py
conductor/fairlead/conductor/verdict.py
daemon/fairlead/daemon/spool.py
daemon/fairlead/daemon/dispatcher.py
watchdog/fairlead/watchdog/archiving.py
watchdog/fairlead/watchdog/pulse.py
watchdog/fairlead/watchdog/rebuild.py
watchdog/fairlead/watchdog/runs.py
watchdog/fairlead/watchdog/stale.py
'
echo
echo "claim, lock, intake, transition and recovery:"
"$bin/coverage" report --show-missing --include="$(echo $core | tr ' ' ,)" --fail-under=100
