"""The embedded store: one SQLite file, WAL, full durability."""
