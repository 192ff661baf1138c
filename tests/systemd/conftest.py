"""Tests here run on hosts of their own, with a real systemd."""

from tests.support.booted.host import booted, fresh_host

__all__ = ["booted", "fresh_host"]
