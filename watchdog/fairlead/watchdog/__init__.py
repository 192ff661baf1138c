"""Heartbeats, completion, crash and hang recovery, reconciliation, archive, retention."""
