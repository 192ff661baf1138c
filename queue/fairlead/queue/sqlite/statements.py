"""All SQL of the embedded store, each statement with what it is for.

A transition is guarded in the write: its WHERE names the state (and token) it leaves, and the caller looks at
the row count. INDEXED BY names the small index that holds nothing but what is looked for: left to itself, the planner
takes a larger one at times, and walks through a million tasks.
"""

TASK_COLUMNS = (
    "id, seq, spec, status, version, created_at, updated_at, started_at, finished_at, attempt, token, "
    "outcome, cancel, archived"
)

# ------------------------------------------------------------------ entering and leaving the queue

#: A task that enters stands where its number in the durable sequence, which is the next one, puts it.
_OWN_PLACE = "(SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'tasks')"

#: Take a task in whose id is new. (ON CONFLICT DO NOTHING would cost half as much again with these many indexes.)
ADD_TASK = f"""
INSERT INTO tasks (id, user, project, rank, status, due, since, place, express, created_at, updated_at, spec)
VALUES (:id, :user, :project, :rank, 'queued', :due, :since, {_OWN_PLACE}, :express, :created_at, :now, :spec)
"""  # noqa: S608 - our own fragment

#: The end of the line: a number of the durable sequence that no task has or will have.
LAST_PLACE = "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'tasks' RETURNING seq"

#: From when on a task could run, whether that time has come, and where it stands in the line.
DUE_OF_TASK = "SELECT since, due, place FROM tasks WHERE id = ?"

#: The waiting tasks of one user.
PENDING_OF_USER = "SELECT pending FROM users WHERE name = ?"

#: Tasks whose time has come, oldest first; of the same time, in the order in which they entered.
COME_DUE = (
    "SELECT seq, user, project FROM tasks INDEXED BY tasks_not_due"
    " WHERE status = 'queued' AND due = 0 AND since <= ? ORDER BY since, seq LIMIT ?"
)
MAKE_DUE = "UPDATE tasks SET due = 1, place = ? WHERE seq = ? AND status = 'queued' AND due = 0"
NEXT_DUE = "SELECT min(since) FROM tasks INDEXED BY tasks_not_due WHERE status = 'queued' AND due = 0"

#: A queued task ends without having run.
CANCEL_QUEUED = """
UPDATE tasks SET status = 'cancelled', outcome = :outcome, finished_at = :now, updated_at = :now,
    version = version + 1
WHERE id = :id AND status = 'queued'
"""

#: Note on an active task that somebody wants it to stop; the first one is remembered.
REQUEST_CANCEL = """
UPDATE tasks SET cancel = coalesce(cancel, :by), updated_at = :now, version = version + 1
WHERE id = :id AND status IN ('claimed', 'running')
"""

#: A failed, cancelled or lost task goes through the queue again, from the end of the line.
RETRY = """
UPDATE tasks SET status = 'queued', due = :due, since = :since, place = :place, outcome = NULL, cancel = NULL,
    started_at = NULL, finished_at = NULL, archived = 0, updated_at = :now, version = version + 1
WHERE id = :id AND status IN ('failed', 'cancelled', 'lost')
"""

#: Change a queued task that still has the version its changer read.
CHANGE = """
UPDATE tasks SET rank = :rank, due = :due, since = :since, place = :place, spec = :spec,
    express = coalesce(:express, express), updated_at = :now, version = version + 1
WHERE id = :id AND version = :version AND status = 'queued'
"""

# ------------------------------------------------------------------ accounts

#: Count a change of what a user, or one of his projects, waits for and runs.
SHIFT_USER = """
UPDATE users SET pending = pending + :pending, ready = ready + :ready, running = running + :running
WHERE name = :user
"""
SHIFT_LANE = """
UPDATE lanes SET pending = pending + :pending, ready = ready + :ready, running = running + :running
WHERE user = :user AND project = :project
"""

#: Standing, weight, and whether it takes part: something is due or runs.
USER_ACCOUNT = "SELECT standing, weight, ready + running > 0 FROM users WHERE name = ?"
LANE_ACCOUNT = "SELECT standing, weight, ready + running > 0 FROM lanes WHERE user = ? AND project = ?"

#: A task whose last run may still live: its lock was quarantined, and then it was retried. It cannot be claimed.
_KEPT = "EXISTS (SELECT 1 FROM locks WHERE name = 'task:' || {tasks}.id)"
#: How many of a lane's due tasks are kept so. Locks of tasks are few; the range holds nothing else.
_KEPT_IN_LANE = """
    (SELECT count(*) FROM locks k CROSS JOIN tasks t ON t.id = substr(k.name, 6)
        WHERE k.name > 'task:' AND k.name < 'task;'
            AND t.user = l.user AND t.project = l.project AND t.status = 'queued' AND t.due = 1)
"""
#: A project of a user with due tasks that can be claimed, and that is not paused.
_OPEN_LANE = f"""
    l.ready > 0 AND NOT EXISTS (SELECT 1 FROM pauses WHERE scope = 'project:' || l.project)
    AND l.ready > {_KEPT_IN_LANE}
"""  # noqa: S608 - our own fragments
#: A user with due tasks whom no pause keeps from starting.
_COULD_START = f"""
    u.ready > 0 AND NOT EXISTS (SELECT 1 FROM pauses WHERE scope = 'user:' || u.name)
    AND EXISTS (SELECT 1 FROM lanes l WHERE l.user = u.name AND {_OPEN_LANE})
"""  # noqa: S608 - our own fragments

#: Where the others are, for a newcomer: the lowest who waits and could start, and the highest who runs. Express tasks
#: do not count: they did not wait for their user's turn.
LEVEL_OF_USERS = f"""
SELECT (SELECT u.standing FROM users u
        WHERE u.name <> :user AND NOT EXISTS (SELECT 1 FROM locks WHERE name = 'user:' || u.name) AND {_COULD_START}
        ORDER BY u.standing LIMIT 1),
    (SELECT max(u.standing) FROM tasks t INDEXED BY tasks_active JOIN users u ON u.name = t.user
        WHERE t.status IN ('claimed', 'running') AND t.express = 0 AND t.user <> :user)
"""  # noqa: S608
LEVEL_OF_LANES = f"""
SELECT (SELECT l.standing FROM lanes l
        WHERE l.user = :user AND l.project <> :project AND {_OPEN_LANE} ORDER BY l.standing LIMIT 1),
    (SELECT max(l.standing)
        FROM tasks t INDEXED BY tasks_active JOIN lanes l ON l.user = t.user AND l.project = t.project
        WHERE t.status IN ('claimed', 'running') AND t.express = 0 AND t.user = :user AND t.project <> :project)
"""  # noqa: S608
PUT_USER = """
INSERT INTO users (name, standing, weight) VALUES (:user, :standing, :weight)
ON CONFLICT (name) DO UPDATE SET standing = excluded.standing, weight = excluded.weight
"""
PUT_LANE = """
INSERT INTO lanes (user, project, standing, weight) VALUES (:user, :project, :standing, :weight)
ON CONFLICT (user, project) DO UPDATE SET standing = excluded.standing, weight = excluded.weight
"""
ALL_USERS = "SELECT name, standing, weight FROM users"
ALL_LANES = "SELECT user, project, standing, weight FROM lanes"
#: Who waits in a project, for the end of its pause.
WAITING_IN_PROJECT = "SELECT user FROM lanes WHERE project = ? AND ready > 0"

#: The lane of a due task whose lock keeps the whole lane: nothing else in it can be claimed.
LANE_KEPT_BY_LOCK = f"""
SELECT l.user, l.project FROM tasks w JOIN lanes l ON l.user = w.user AND l.project = w.project
WHERE :name = 'task:' || w.id AND w.id = substr(:name, 6) AND w.status = 'queued' AND w.due = 1
    AND l.ready <= {_KEPT_IN_LANE}
"""  # noqa: S608

#: The accounts' clock never goes back, whatever the wall clock does and whoever restarts.
CLOCK = "SELECT value FROM counters WHERE name = 'clock'"
ADVANCE_CLOCK = "UPDATE counters SET value = max(value, ?) WHERE name = 'clock' RETURNING value"
#: The half-life that the standings are written with: the first writer's, until it is changed for all of them at once.
HALF_LIFE = """
INSERT INTO facts (name, value) VALUES ('half_life', ?) ON CONFLICT (name) DO UPDATE SET value = value RETURNING value
"""

# ------------------------------------------------------------------ choosing

#: What keeps one user's tasks apart: his lock, and whatever of his still runs, under whichever lock. Where
#: serialization is off, only a person's hold.
_FREE = """
    NOT EXISTS (SELECT 1 FROM locks WHERE name = 'user:' || u.name AND (:serialized OR kind = 'hold'))
    AND (u.running = 0 OR NOT :serialized)
"""
#: Users who can start, those who stand lowest first. Whoever cannot is skipped here, before the limit: else a few
#: paused users at the front would hide everybody behind them.
NEXT_USERS = f"""
SELECT u.name, u.standing FROM users u
WHERE {_COULD_START} AND {_FREE} AND u.name NOT IN (SELECT value FROM json_each(:exclude))
ORDER BY u.standing, u.name LIMIT :limit
"""  # noqa: S608
USER_STANDING = "SELECT standing FROM users WHERE name = ?"

#: The project of a user whose turn it is: no other one of his can be next.
NEXT_LANE = f"""
SELECT l.project, l.standing FROM lanes l WHERE l.user = ? AND {_OPEN_LANE} ORDER BY l.standing, l.project LIMIT 1
"""  # noqa: S608

#: The first due task of each priority in a lane that can be claimed: four steps into one index.
HEADS = " UNION ALL ".join(
    "SELECT * FROM (SELECT id, rank, place, since, express FROM tasks INDEXED BY tasks_heads"  # noqa: S608 - ranks are our own numbers
    f" WHERE user = :user AND project = :project AND rank = {rank} AND status = 'queued' AND due = 1"
    f" AND NOT {_KEPT.format(tasks='tasks')} ORDER BY place LIMIT 1)"
    for rank in range(4)
)

#: Operators' critical tasks, whoever's turn it is.
EXPRESS = f"""
SELECT t.user, t.project, t.id, t.rank, t.place, t.since, u.standing
FROM tasks t INDEXED BY tasks_express JOIN users u ON u.name = t.user
WHERE t.status = 'queued' AND t.due = 1 AND t.express = 1 AND {_FREE} AND NOT {_KEPT.format(tasks="t")}
    AND NOT EXISTS (SELECT 1 FROM pauses WHERE scope IN ('user:' || t.user, 'project:' || t.project))
    AND t.user NOT IN (SELECT value FROM json_each(:exclude))
ORDER BY t.place LIMIT :limit
"""  # noqa: S608

#: For explaining: all projects of a user with due tasks, and an operator's critical task in one of them.
DUE_LANES = "SELECT project, standing FROM lanes WHERE user = ? AND ready > 0 ORDER BY standing, project"
EXPRESS_IN_LANE = f"""
SELECT id, rank, place, since, express FROM tasks INDEXED BY tasks_express
WHERE user = ? AND project = ? AND status = 'queued' AND due = 1 AND express = 1
    AND NOT {_KEPT.format(tasks="tasks")}
ORDER BY place LIMIT 1
"""  # noqa: S608

_ACTIVE = "tasks INDEXED BY tasks_active WHERE status IN ('claimed', 'running')"
COUNT_ACTIVE = f"SELECT count(*) FROM {_ACTIVE}"  # noqa: S608

# ------------------------------------------------------------------ running

#: A number that only grows: it fences off every earlier holder.
NEXT_TOKEN = "UPDATE counters SET value = value + 1 WHERE name = 'token' RETURNING value"  # noqa: S105 - no secret
SKIP_TOKENS = "UPDATE counters SET value = value + ? WHERE name = 'token'"
TOKEN_AT_LEAST = "UPDATE counters SET value = max(value, ?) WHERE name = 'token'"  # noqa: S105 - no secret

#: Whether one of this user's tasks may start now, as far as his others and his hold go.
IS_FREE = f"SELECT {_FREE} FROM users u WHERE u.name = :user"  # noqa: S608

#: A pause that came after the decision still counts, and so does the lock of a run that may still live.
CLAIM = f"""
UPDATE tasks SET status = 'claimed', attempt = attempt + 1, token = :token, started_at = NULL,
    finished_at = NULL, outcome = NULL, cancel = NULL, updated_at = :now, version = version + 1
WHERE id = :id AND user = :user AND status = 'queued' AND due = 1
    AND NOT EXISTS (SELECT 1 FROM pauses WHERE scope IN ('all', 'user:' || user, 'project:' || project))
    AND NOT {_KEPT.format(tasks="tasks")}
"""  # noqa: S608

#: The claim is undone: its agent provably never started.
UNCLAIM = """
UPDATE tasks SET status = 'queued', updated_at = :now, version = version + 1
WHERE id = :id AND token = :token AND status = 'claimed'
"""

STARTED = """
UPDATE tasks SET status = 'running', started_at = :started_at, updated_at = :started_at, version = version + 1
WHERE id = :id AND token = :token AND status = 'claimed'
"""

FINISH = """
UPDATE tasks SET status = :status, outcome = :outcome, started_at = coalesce(started_at, :started_at),
    finished_at = :finished_at, updated_at = :now, version = version + 1
WHERE id = :id AND token = :token AND status IN ('claimed', 'running')
"""

ADD_ATTEMPT = """
INSERT INTO attempts (task_id, number, token, claimed_at, host) VALUES (:id, :number, :token, :now, :host)
"""
ATTEMPT_STARTED = "UPDATE attempts SET started_at = :started_at WHERE token = :token AND started_at IS NULL"
ATTEMPT_ENDED = """
UPDATE attempts SET finished_at = :finished_at, status = :status, reason = :reason, error = :error,
    exit_code = :exit_code, signal = :signal, started_at = coalesce(started_at, :started_at)
WHERE token = :token
"""

# ------------------------------------------------------------------ locks

LOCK_COLUMNS = (
    "name, lock_id, token, task_id, kind, state, acquired_at, expires_at, host, boot_id, pid, pid_start, evidence"
)
TAKE_LOCK = """
INSERT INTO locks (name, lock_id, token, task_id, kind, acquired_at, expires_at, host, boot_id, pid, pid_start)
VALUES (:name, :lock_id, :token, :task_id, :kind, :now, :expires_at, :host, :boot_id, :pid, :start)
"""
LOCK_HOLDER = """
UPDATE locks SET host = :host, boot_id = :boot_id, pid = :pid, pid_start = :start WHERE token = :token
"""
REMEMBER_LOCK = """
INSERT INTO past_locks (lock_id, name, token, task_id, kind, acquired_at, released_at, why, evidence)
SELECT lock_id, name, token, task_id, kind, acquired_at, :now, :why, :evidence FROM locks WHERE lock_id = :lock_id
ON CONFLICT (lock_id) DO NOTHING
"""
FREE_LOCK = "DELETE FROM locks WHERE lock_id = :lock_id"
RENEW_LOCK = "UPDATE locks SET expires_at = :expires_at WHERE lock_id = :lock_id"
QUARANTINE_LOCK = "UPDATE locks SET state = 'quarantined', evidence = :evidence WHERE lock_id = :lock_id"
LOCKS = f"SELECT {LOCK_COLUMNS} FROM locks ORDER BY acquired_at"  # noqa: S608 - our own columns
LOCK_BY_NAME = f"SELECT {LOCK_COLUMNS} FROM locks WHERE name = ?"  # noqa: S608
LOCK_BY_ID = f"SELECT {LOCK_COLUMNS} FROM locks WHERE lock_id = ?"  # noqa: S608
LOCK_BY_TOKEN = f"SELECT {LOCK_COLUMNS} FROM locks WHERE token = ?"  # noqa: S608
PAST_LOCK = """
SELECT name, lock_id, token, task_id, kind, acquired_at, released_at, why, evidence FROM past_locks
WHERE lock_id = ?
"""

PAST_LOCKS = """
SELECT name, lock_id, token, task_id, kind, acquired_at, released_at, why, evidence FROM past_locks
ORDER BY released_at DESC LIMIT ?
"""

# ------------------------------------------------------------------ pausing

PAUSE = """
INSERT INTO pauses (scope, at, by, reason) VALUES (:scope, :now, :by, :reason)
ON CONFLICT (scope) DO UPDATE SET at = excluded.at, by = excluded.by, reason = excluded.reason
"""
RESUME = "DELETE FROM pauses WHERE scope = ?"
PAUSES = "SELECT scope, at, by, reason FROM pauses ORDER BY at"

# ------------------------------------------------------------------ reading

TASK = f"SELECT {TASK_COLUMNS} FROM tasks WHERE id = ?"  # noqa: S608
ACTIVE_TASKS = f"SELECT {TASK_COLUMNS} FROM {_ACTIVE} ORDER BY seq"  # noqa: S608
#: Ids that begin with a text; or else those whose random tail, behind date and time, does. The second walks the whole
#: index of ids, which takes 60 ms at a million tasks.
FIND = "SELECT id FROM tasks WHERE id >= :part AND id < :part || '~' ORDER BY id LIMIT 20"
FIND_BY_TAIL = "SELECT id FROM tasks WHERE substr(id, 20, length(:part)) = :part LIMIT 20"


def newest(*, user: bool, project: bool, statuses: int) -> str:
    """Tasks, newest first, as many as :limit: one walk down an index per status, so that no other is looked at."""
    filters = ["user = :user"] * user + ["project = :project"] * project
    if not statuses:
        return f"SELECT {TASK_COLUMNS} FROM tasks {_where(filters)} ORDER BY seq DESC LIMIT :limit"  # noqa: S608
    walks = " UNION ALL ".join(
        f"SELECT * FROM (SELECT seq FROM tasks {_where([*filters, f'status = :status{number}'])}"  # noqa: S608
        " ORDER BY seq DESC LIMIT :limit)"
        for number in range(statuses)
    )
    return f"SELECT {TASK_COLUMNS} FROM tasks WHERE seq IN ({walks}) ORDER BY seq DESC LIMIT :limit"  # noqa: S608


def _where(filters: list[str]) -> str:
    return f"WHERE {' AND '.join(filters)}" if filters else ""


ATTEMPTS = """
SELECT number, token, claimed_at, started_at, finished_at, status, reason, error, exit_code, signal, host
FROM attempts WHERE task_id = ? ORDER BY number
"""
ADD_EVENT = """
INSERT INTO events (at, task_id, user, event, status, detail) VALUES (?, ?, ?, ?, ?, ?)
"""
EVENTS = "SELECT seq, at, task_id, user, event, status, detail FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
LAST_EVENT = "SELECT max(seq) FROM events"
EVENTS_OF_TASK = """
SELECT seq, at, task_id, user, event, status, detail FROM events
WHERE task_id = ? AND seq > ? ORDER BY seq LIMIT ?
"""

# ------------------------------------------------------------------ counting

ACTIVE_BY_USER = f"SELECT user, count(*) FROM {_ACTIVE} GROUP BY user"  # noqa: S608
ACTIVE_BY_PROJECT = f"SELECT project, count(*) FROM {_ACTIVE} GROUP BY project"  # noqa: S608
PENDING_TOTAL = "SELECT coalesce(sum(pending), 0), coalesce(sum(ready), 0) FROM users"
#: All priorities but the usual one, whose tasks are what is left of the total: a million of them need not be counted.
PENDING_BY_RANK = """
SELECT rank, count(*) FROM tasks INDEXED BY tasks_unusual WHERE status = 'queued' AND rank <> 2 GROUP BY rank
"""
FINISHED_BY_STATUS = """
SELECT status, count(*) FROM tasks WHERE status IN ('completed', 'failed', 'cancelled', 'lost') GROUP BY status
"""

# ------------------------------------------------------------------ keeping

UNARCHIVED = f"""
SELECT {TASK_COLUMNS} FROM tasks INDEXED BY tasks_unarchived
WHERE archived = 0 AND status IN ('completed', 'failed', 'cancelled', 'lost') ORDER BY seq LIMIT ?
"""  # noqa: S608
MARK_ARCHIVED = "UPDATE tasks SET archived = 1 WHERE id = ? AND version = ?"
#: A task that a quarantined lock still names stays: whoever has to decide about the lock will want to read it.
FORGETTABLE = """
SELECT id FROM tasks INDEXED BY tasks_archived
WHERE archived = 1 AND finished_at < ? AND NOT EXISTS (SELECT 1 FROM locks WHERE task_id = tasks.id)
ORDER BY finished_at LIMIT ?
"""
FORGET_TASK = "DELETE FROM tasks WHERE id = ? AND archived = 1"
FORGET_ATTEMPTS = "DELETE FROM attempts WHERE task_id = ?"
FORGET_EVENTS = "DELETE FROM events WHERE task_id = ?"
FORGET_OLD_LOCKS = "DELETE FROM past_locks WHERE released_at < ?"
FORGET_OLD_EVENTS = "DELETE FROM events INDEXED BY events_of_nobody WHERE task_id IS NULL AND at < ?"

SET_FACT = "INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
FACTS = "SELECT name, value FROM facts"
FACT = "SELECT value FROM facts WHERE name = ?"

# ------------------------------------------------------------------ rebuilding

#: Put a task back as the files tell it.
RESTORE_TASK = f"""
INSERT INTO tasks (id, user, project, rank, status, due, since, place, express, version, created_at, updated_at,
    started_at, finished_at, attempt, token, cancel, archived, spec, outcome)
VALUES (:id, :user, :project, :rank, :status, :due, :since, {_OWN_PLACE}, :express, :version, :created_at,
    :updated_at, :started_at, :finished_at, :attempt, :token, :cancel, :archived, :spec, :outcome)
"""  # noqa: S608
RESTORE_ATTEMPT = """
INSERT INTO attempts (task_id, number, token, claimed_at, started_at, finished_at, status, reason, error,
    exit_code, signal, host)
VALUES (:task_id, :number, :token, :claimed_at, :started_at, :finished_at, :status, :reason, :error,
    :exit_code, :signal, :host)
"""

# What SQLite itself finds wrong with its file: "ok", or a few rows that say what.
QUICK_CHECK = "PRAGMA quick_check(5)"
