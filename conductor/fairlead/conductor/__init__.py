"""One run: its directory, its supervisor, and how it is started."""
