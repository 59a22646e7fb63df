"""A fixture for tests that render reports: what takes longest is to draw the same figures again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

DRAWN: dict[str, Any] = {}
"""The figures that were drawn in this process, by what they show. Clear it to have them drawn again."""


@pytest.fixture(scope="session", autouse=True)
def figures_drawn_once() -> Iterator[None]:
    """A figure is drawn once a process for the same numbers and words."""
    from dpassay.reports import figures

    def once(draw: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(draw)
        def shown(*given: Any) -> Any:
            key = repr((draw.__name__, given))
            if key not in DRAWN:
                DRAWN[key] = draw(*given)
            return DRAWN[key]

        return shown

    with pytest.MonkeyPatch.context() as patch:
        for name in ("claim_and_bounds", "rates", "rounds", "tokens", "batches"):
            patch.setattr(figures, name, once(getattr(figures, name)))
        yield
