"""The result an agent leaves: whatever it wrote, if the rest of Fairlead can carry it."""

from typing import Any

from msgspec import json

from fairlead.base.errors import FairleadError
from fairlead.base.files import read_plain

#: Collections within collections: whoever reads the result later must not run out of stack.
MAX_DEPTH = 32
#: meta.json has to hold it, whatever the settings allow.
MAX_BYTES = 4 << 20
#: Beyond this it is no cost, and an integer may be too large for a float.
MAX_COST = 1e15


class UnusableResultError(FairleadError):
    """The result file holds something that cannot be taken over."""


def read_result(path: str, limit: int) -> Any:  # noqa: ANN401 - whatever the agent wrote
    """Read an agent's result file."""
    try:
        data = read_plain(path, min(limit, MAX_BYTES))
    except FileNotFoundError:
        raise
    except (FairleadError, OSError) as error:
        raise UnusableResultError(str(error)) from error
    return parse_result(data)


def parse_result(data: bytes) -> Any:  # noqa: ANN401 - whatever the agent wrote
    """What an agent's result file holds."""
    try:
        result = json.decode(data)
    except ValueError as error:
        raise UnusableResultError(str(error)) from error
    except RecursionError:
        raise UnusableResultError(_TOO_DEEP) from None
    if _is_deeper(result, MAX_DEPTH):
        raise UnusableResultError(_TOO_DEEP)
    return result


_TOO_DEEP = f"lists and objects are nested more than {MAX_DEPTH} deep"


def _is_deeper(value: object, most: int) -> bool:
    level = _collections([value])
    for _ in range(most):
        level = [inner for outer in level for inner in _collections(outer)]
    return bool(level)


def _collections(outer: list[Any] | dict[str, Any]) -> list[list[Any] | dict[str, Any]]:
    inner = outer.values() if isinstance(outer, dict) else outer
    return [value for value in inner if isinstance(value, dict | list)]


def cost_of(result: object) -> float | None:
    """What the run has cost, if its result says so in a number."""
    cost = result.get("cost") if isinstance(result, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    return float(cost) if 0 <= cost < MAX_COST else None
