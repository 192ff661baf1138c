"""Assertions of the suite for all stores explain themselves like those of any other test."""

import pytest

pytest.register_assert_rewrite("tests.queue.conforming", "tests.queue.driver", "tests.queue.invariants")
