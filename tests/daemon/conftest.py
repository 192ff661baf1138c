"""Every test here has an instance of its own."""

from tests.support.instance import home

__all__ = ["home"]
