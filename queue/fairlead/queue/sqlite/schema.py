"""The tables, and how an older file becomes a newer one."""

#: One script per version; a file at version N runs scripts N+1 and on, each in a transaction with its number.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE tasks (
        -- The durable sequence that FIFO means; AUTOINCREMENT never gives a number twice.
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        user TEXT NOT NULL,
        project TEXT NOT NULL,
        rank INTEGER NOT NULL,
        status TEXT NOT NULL,
        -- 1 once `since` has come: only then does it take part.
        due INTEGER NOT NULL,
        since INTEGER NOT NULL,
        express INTEGER NOT NULL DEFAULT 0,
        version INTEGER NOT NULL DEFAULT 1,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        started_at INTEGER,
        finished_at INTEGER,
        attempt INTEGER NOT NULL DEFAULT 0,
        token INTEGER NOT NULL DEFAULT 0,
        -- Who asked an active task to stop.
        cancel TEXT,
        archived INTEGER NOT NULL DEFAULT 0,
        spec TEXT NOT NULL,
        outcome TEXT
    ) STRICT;
    CREATE INDEX tasks_heads ON tasks (user, project, rank, seq) WHERE status = 'queued' AND due = 1;
    CREATE INDEX tasks_not_due ON tasks (since, rank) WHERE status = 'queued' AND due = 0;
    CREATE INDEX tasks_express ON tasks (seq) WHERE status = 'queued' AND due = 1 AND express = 1;
    CREATE INDEX tasks_active ON tasks (seq) WHERE status IN ('claimed', 'running');
    CREATE INDEX tasks_unarchived ON tasks (seq)
        WHERE archived = 0 AND status IN ('completed', 'failed', 'cancelled', 'lost');
    CREATE INDEX tasks_archived ON tasks (finished_at) WHERE archived = 1;
    -- For lists; a task enters a tenth slower for them. The random tails of the ids have no index: at a million
    -- tasks it would halve the speed, to save a person who types a tail 60 ms.
    CREATE INDEX tasks_by_status ON tasks (status, seq);
    CREATE INDEX tasks_of_user ON tasks (user, status, seq);
    CREATE INDEX tasks_of_project ON tasks (project, status, seq);

    -- One row per user: what he waits for and where he stands. Counts are kept with every transition, so
    -- that picking never counts.
    CREATE TABLE users (
        name TEXT PRIMARY KEY,
        standing REAL NOT NULL,
        weight REAL NOT NULL,
        pending INTEGER NOT NULL DEFAULT 0,
        ready INTEGER NOT NULL DEFAULT 0,
        running INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX users_ready ON users (standing, name) WHERE ready > 0;

    -- The same per project of a user.
    CREATE TABLE lanes (
        user TEXT NOT NULL,
        project TEXT NOT NULL,
        standing REAL NOT NULL,
        weight REAL NOT NULL,
        pending INTEGER NOT NULL DEFAULT 0,
        ready INTEGER NOT NULL DEFAULT 0,
        running INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (user, project)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX lanes_ready ON lanes (user, standing, project) WHERE ready > 0;

    CREATE TABLE attempts (
        task_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        token INTEGER NOT NULL UNIQUE,
        claimed_at INTEGER NOT NULL,
        started_at INTEGER,
        finished_at INTEGER,
        status TEXT,
        reason TEXT NOT NULL DEFAULT '',
        error TEXT NOT NULL DEFAULT '',
        exit_code INTEGER,
        signal TEXT,
        host TEXT NOT NULL,
        PRIMARY KEY (task_id, number)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE locks (
        name TEXT PRIMARY KEY,
        lock_id TEXT NOT NULL UNIQUE,
        token INTEGER NOT NULL,
        task_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'held',
        acquired_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        host TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        pid INTEGER NOT NULL,
        pid_start INTEGER NOT NULL,
        evidence TEXT NOT NULL DEFAULT '{}'
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE past_locks (
        lock_id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        token INTEGER NOT NULL,
        task_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        acquired_at INTEGER NOT NULL,
        released_at INTEGER NOT NULL,
        why TEXT NOT NULL,
        evidence TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX past_locks_by_time ON past_locks (released_at);

    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        task_id TEXT,
        user TEXT,
        event TEXT NOT NULL,
        status TEXT,
        detail TEXT NOT NULL DEFAULT '{}'
    ) STRICT;
    CREATE INDEX events_of_task ON events (task_id, seq);
    CREATE INDEX events_of_nobody ON events (at) WHERE task_id IS NULL;

    CREATE TABLE pauses (
        scope TEXT PRIMARY KEY,
        at INTEGER NOT NULL,
        by TEXT NOT NULL,
        reason TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    -- The clock of the accounts: the latest wall milliseconds that anybody wrote with. It never goes back.
    INSERT INTO counters VALUES ('token', 0), ('clock', 0);

    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    """,
    """
    -- Where a task stands in the line of its priority: its seq, or a later number of the same sequence if it became
    -- due, or was retried, after it had entered. By seq alone, one that has just become due would stand before those
    -- that have waited long, and nobody would see how long.
    ALTER TABLE tasks ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
    UPDATE tasks SET place = seq;
    DROP INDEX tasks_heads;
    CREATE INDEX tasks_heads ON tasks (user, project, rank, place) WHERE status = 'queued' AND due = 1;
    DROP INDEX tasks_express;
    CREATE INDEX tasks_express ON tasks (place) WHERE status = 'queued' AND due = 1 AND express = 1;
    -- For `status`, which counts these; the usual ones are what is left.
    CREATE INDEX tasks_unusual ON tasks (rank) WHERE status = 'queued' AND rank <> 2;
    """,
)
VERSION = len(MIGRATIONS)
