"""HTTP on a unix socket: the desk, for every language."""
