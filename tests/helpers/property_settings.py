"""How much is tried: little, and always the same, in `make test`; more in `make verify`.

`conftest` loads the profile of Hypothesis that says which of the two runs.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def number(usual: int, verify: int) -> int:
    """The first in `make test`, the second in `make verify`."""
    return usual if settings().derandomize else verify


def examples(usual: int, verify: int, **more: Any) -> settings:
    """Settings of a property with so many random examples.

    Args:
        usual: in `make test`.
        verify: in `make verify`, which draws new ones unless `more` has ``derandomize=True``.
        more: other settings of Hypothesis.
    """
    return settings(max_examples=number(usual, verify), **more)
