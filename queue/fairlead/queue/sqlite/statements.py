"""All SQL of the embedded store, each statement with what it is for.

A transition is guarded in the write: its WHERE names the state (and token) it leaves, and the caller looks at
the row count.
"""

TASK_COLUMNS = (
    "id, seq, spec, status, version, created_at, updated_at, started_at, finished_at, attempt, token, "
    "outcome, cancel, archived"
)

# ------------------------------------------------------------------ entering and leaving the queue

#: Take a task in; a known id changes nothing and returns nothing.
ADD_TASK = """
INSERT INTO tasks (id, user, project, rank, status, due, since, express, created_at, updated_at, spec)
VALUES (:id, :user, :project, :rank, 'queued', :due, :since, :express, :created_at, :now, :spec)
ON CONFLICT (id) DO NOTHING RETURNING seq
"""

#: The waiting tasks of one user.
PENDING_OF_USER = "SELECT pending FROM users WHERE name = ?"

#: Tasks whose time has come, oldest first.
COME_DUE = (
    "SELECT seq, user, project FROM tasks WHERE status = 'queued' AND due = 0 AND since <= ? ORDER BY since LIMIT ?"
)
MAKE_DUE = "UPDATE tasks SET due = 1 WHERE seq = ? AND status = 'queued' AND due = 0"
NEXT_DUE = "SELECT min(since) FROM tasks WHERE status = 'queued' AND due = 0"

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

#: A failed, cancelled or lost task goes through the queue again, at its old place.
RETRY = """
UPDATE tasks SET status = 'queued', due = 1, since = :now, outcome = NULL, cancel = NULL, started_at = NULL,
    finished_at = NULL, archived = 0, updated_at = :now, version = version + 1
WHERE id = :id AND status IN ('failed', 'cancelled', 'lost')
"""

#: Change a queued task that still has the version its changer read.
CHANGE = """
UPDATE tasks SET rank = :rank, due = :due, since = :since, spec = :spec, updated_at = :now, version = version + 1
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

USER_ACCOUNT = "SELECT standing, weight, pending + running FROM users WHERE name = ?"
LANE_ACCOUNT = "SELECT standing, weight, pending + running FROM lanes WHERE user = ? AND project = ?"
#: Where the others are, for a newcomer: the lowest who waits, and the highest who runs.
LEVEL_OF_USERS = """
SELECT (SELECT min(standing) FROM users WHERE ready > 0 AND locked = 0),
    (SELECT max(standing) FROM users WHERE running > 0)
"""
LEVEL_OF_LANES = """
SELECT (SELECT min(standing) FROM lanes WHERE user = :user AND ready > 0),
    (SELECT max(standing) FROM lanes WHERE user = :user AND running > 0)
"""
#: A user may be locked by hand before his first task comes.
PUT_USER = """
INSERT INTO users (name, standing, weight, locked)
VALUES (:user, :standing, :weight, EXISTS (SELECT 1 FROM locks WHERE name = 'user:' || :user))
ON CONFLICT (name) DO UPDATE SET standing = excluded.standing, weight = excluded.weight
"""
PUT_LANE = """
INSERT INTO lanes (user, project, standing, weight) VALUES (:user, :project, :standing, :weight)
ON CONFLICT (user, project) DO UPDATE SET standing = excluded.standing, weight = excluded.weight
"""
ALL_USERS = "SELECT name, standing, weight FROM users"
ALL_LANES = "SELECT user, project, standing, weight FROM lanes"
LOCK_USER = "UPDATE users SET locked = :locked WHERE name = :user"

# ------------------------------------------------------------------ choosing

#: Users with due tasks, those who stand lowest first. :any_lock = 1 where serialization is off.
NEXT_USERS = """
SELECT name, standing FROM users
WHERE ready > 0 AND (locked = 0 OR :any_lock) AND name NOT IN (SELECT value FROM json_each(:exclude))
ORDER BY standing, name LIMIT :limit
"""
USER_STANDING = "SELECT standing FROM users WHERE name = ?"

#: The projects of a user with due tasks, but for the paused ones.
NEXT_LANES = """
SELECT project, standing FROM lanes
WHERE user = :user AND ready > 0 AND project NOT IN (SELECT value FROM json_each(:paused))
ORDER BY standing, project LIMIT :limit
"""

#: The first due task of each priority in a lane: four steps into one index.
HEADS = " UNION ALL ".join(
    "SELECT * FROM (SELECT id, rank, seq, since, express FROM tasks"  # noqa: S608 - ranks are our own numbers
    f" WHERE user = :user AND project = :project AND rank = {rank} AND status = 'queued' AND due = 1"
    " ORDER BY seq LIMIT 1)"
    for rank in range(4)
)

#: Operators' critical tasks, whoever's turn it is.
EXPRESS = """
SELECT t.user, t.project, t.id, t.rank, t.seq, t.since, u.standing
FROM tasks t JOIN users u ON u.name = t.user
WHERE t.status = 'queued' AND t.due = 1 AND t.express = 1 AND (u.locked = 0 OR :any_lock)
    AND t.user NOT IN (SELECT value FROM json_each(:exclude))
ORDER BY t.seq LIMIT :limit
"""

COUNT_ACTIVE = "SELECT count(*) FROM tasks WHERE status IN ('claimed', 'running')"

# ------------------------------------------------------------------ running

#: A number that only grows: it fences off every earlier holder.
NEXT_TOKEN = "UPDATE counters SET value = value + 1 WHERE name = 'token' RETURNING value"  # noqa: S105 - no secret
TOKEN_AT_LEAST = "UPDATE counters SET value = max(value, ?) WHERE name = 'token'"  # noqa: S105 - no secret

CLAIM = """
UPDATE tasks SET status = 'claimed', attempt = attempt + 1, token = :token, started_at = NULL,
    finished_at = NULL, outcome = NULL, cancel = NULL, updated_at = :now, version = version + 1
WHERE id = :id AND status = 'queued' AND due = 1
"""

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
FREE_LOCK = "DELETE FROM locks WHERE lock_id = :lock_id RETURNING name"
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

# ------------------------------------------------------------------ pausing

PAUSE = """
INSERT INTO pauses (scope, at, by, reason) VALUES (:scope, :now, :by, :reason)
ON CONFLICT (scope) DO UPDATE SET at = excluded.at, by = excluded.by, reason = excluded.reason
"""
RESUME = "DELETE FROM pauses WHERE scope = ?"
PAUSES = "SELECT scope, at, by, reason FROM pauses ORDER BY at"

# ------------------------------------------------------------------ reading

TASK = f"SELECT {TASK_COLUMNS} FROM tasks WHERE id = ?"  # noqa: S608
ACTIVE_TASKS = f"SELECT {TASK_COLUMNS} FROM tasks WHERE status IN ('claimed', 'running') ORDER BY seq"  # noqa: S608
#: Ids that begin with a text, or whose random tail (behind date and time) does.
FIND = """
SELECT id FROM tasks WHERE id >= :part AND id < :part || '~'
UNION SELECT id FROM tasks WHERE substr(id, 20) >= :part AND substr(id, 20) < :part || '~'
LIMIT 20
"""
LIST = f"""
SELECT {TASK_COLUMNS} FROM tasks
WHERE (:any_status OR status IN (SELECT value FROM json_each(:statuses)))
    AND (:user IS NULL OR user = :user) AND (:project IS NULL OR project = :project)
ORDER BY seq DESC LIMIT :limit
"""  # noqa: S608
#: A task's own tasks in the same lane that go before it: a lower seq of the same priority.
AHEAD_IN_LANE = """
SELECT count(*) FROM tasks
WHERE user = :user AND project = :project AND rank = :rank AND status = 'queued' AND due = 1 AND seq < :seq
"""
ATTEMPTS = """
SELECT number, token, claimed_at, started_at, finished_at, status, reason, error, exit_code, signal, host
FROM attempts WHERE task_id = ? ORDER BY number
"""
ADD_EVENT = """
INSERT INTO events (at, task_id, user, event, status, detail) VALUES (?, ?, ?, ?, ?, ?)
"""
EVENTS = "SELECT seq, at, task_id, user, event, status, detail FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
EVENTS_OF_TASK = """
SELECT seq, at, task_id, user, event, status, detail FROM events
WHERE task_id = ? AND seq > ? ORDER BY seq LIMIT ?
"""

# ------------------------------------------------------------------ keeping

UNARCHIVED = f"""
SELECT {TASK_COLUMNS} FROM tasks
WHERE archived = 0 AND status IN ('completed', 'failed', 'cancelled', 'lost') ORDER BY seq LIMIT ?
"""  # noqa: S608
MARK_ARCHIVED = "UPDATE tasks SET archived = 1 WHERE id = ? AND version = ?"
FORGETTABLE = "SELECT id FROM tasks WHERE archived = 1 AND finished_at < ? ORDER BY finished_at LIMIT ?"
FORGET_TASK = "DELETE FROM tasks WHERE id = ? AND archived = 1"
FORGET_ATTEMPTS = "DELETE FROM attempts WHERE task_id = ?"
FORGET_EVENTS = "DELETE FROM events WHERE task_id = ?"
FORGET_OLD_LOCKS = "DELETE FROM past_locks WHERE released_at < ?"
FORGET_OLD_EVENTS = "DELETE FROM events WHERE task_id IS NULL AND at < ?"

SET_FACT = "INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
FACTS = "SELECT name, value FROM facts"

# ------------------------------------------------------------------ rebuilding

#: Put a task back as the files tell it.
RESTORE_TASK = """
INSERT INTO tasks (id, user, project, rank, status, due, since, express, version, created_at, updated_at,
    started_at, finished_at, attempt, token, cancel, archived, spec, outcome)
VALUES (:id, :user, :project, :rank, :status, :due, :since, :express, :version, :created_at, :updated_at,
    :started_at, :finished_at, :attempt, :token, :cancel, :archived, :spec, :outcome)
"""
RESTORE_ATTEMPT = """
INSERT INTO attempts (task_id, number, token, claimed_at, started_at, finished_at, status, reason, error,
    exit_code, signal, host)
VALUES (:task_id, :number, :token, :claimed_at, :started_at, :finished_at, :status, :reason, :error,
    :exit_code, :signal, :host)
"""
