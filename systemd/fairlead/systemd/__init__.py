"""Units, timers, readiness and watchdog notification."""
