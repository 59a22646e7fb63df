"""Steps of SmartNoise's odometer, `snsql.sql.odometer.OdometerHeterogeneous.steps`, as JSON: ``{"steps": [...]}``.

A list of (ε, δ), one for each column that was released. The odometer composes them by Theorem 3.5 of Kairouz, Oh and
Viswanath (2015). A list without its name could hold anything, so it is not recognised.

Source: `odometer.py` and `private_reader.py` of smartnoise-sql 1.0.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpassay.accounting.events import EpsilonDeltaDpEvent
from dpassay.accounting.interop.names import left_unread
from dpassay.accounting.interop.state import RepeatedEvent, State
from dpassay.base import validate

_MAX_STEPS = 100_000


def recognize(content: Any) -> State | None:
    """The state in JSON content; None if there is none."""
    if not isinstance(content, Mapping) or not {"steps"} <= set(content) <= {"steps", "privacy", "tol"}:
        return None
    steps = content["steps"]
    if not isinstance(steps, list):
        return None
    if len(steps) > _MAX_STEPS:
        raise ValueError(f"holds more than {_MAX_STEPS} steps of SmartNoise's odometer")
    return State(
        library="SmartNoise",
        what="a list of steps of SmartNoise's odometer",
        parts=tuple(_step(item, index) for index, item in enumerate(steps)),
        remarks=left_unread(content, ["steps"]),
        notes=(
            "Each released column was (ε, δ)-DP as its step says, under the sensitivities and max_ids of the metadata.",
            "Which groups of a GROUP BY were released is paid by the δ of the count of their keys.",
        ),
        exact=False,
    )


def _step(item: Any, index: int) -> RepeatedEvent:
    if not isinstance(item, list) or len(item) != 2 or not all(isinstance(each, int | float) for each in item):
        raise ValueError(f"steps[{index}] must be two numbers: ε and δ")
    epsilon, delta = item
    try:
        validate.non_negative(epsilon=epsilon)
        return RepeatedEvent(EpsilonDeltaDpEvent(float(epsilon), float(validate.probability(delta=delta))))
    except OverflowError:
        raise ValueError(f"steps[{index}] has a number out of range") from None
    except ValueError as error:
        raise ValueError(f"steps[{index}]: {error}") from None
