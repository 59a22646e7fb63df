"""Configurations in reports of NeMo Safe Synthesizer, as JSON.

A report and ``safe-synthesizer-config.json`` hold the ε and δ that were configured. What training spent is in its log
only. A number that was asked for proves nothing, so no bound follows.

Source: `config/differential_privacy.py`, `config/parameters.py` and `multimodal_report.py` (in `evaluation/reports`) of
nemo-safe-synthesizer 0.1.16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dp_accounting import dp_event

from dpassay.accounting.interop.names import left_unread
from dpassay.accounting.interop.state import RepeatedEvent, State
from dpassay.base import validate

_FIELDS = {"dp_enabled", "epsilon", "delta"}


def recognize(content: Any) -> State | None:
    """The state in JSON content; None if there is none."""
    match content:
        case {"config": {"privacy": Mapping() as privacy} as config} | ({"privacy": Mapping() as privacy} as config):
            pass
        case _:
            return None
    if not set(privacy) >= _FIELDS:
        return None
    enabled, epsilon, delta = privacy["dp_enabled"], privacy["epsilon"], privacy["delta"]
    if not isinstance(enabled, bool):
        raise ValueError("looks like a configuration of Safe Synthesizer, but dp_enabled is neither true nor false")
    if not enabled:
        epsilon, delta = None, None
        note = "Differential privacy was switched off in this configuration."
    else:
        epsilon = _positive(epsilon)
        delta = None if delta == "auto" else float(validate.open_probability(delta=delta))
        note = (
            f"ε = {epsilon!r} is what was configured, not what ran: the file records neither noise nor steps, so it "
            "proves no bound. The training log has the noise multiplier, the sampling rate and the steps."
        )
    return State(
        library="Safe Synthesizer",
        what="a configuration of NeMo Safe Synthesizer",
        parts=(RepeatedEvent(dp_event.NonPrivateDpEvent()),),
        delta=delta,
        stated=epsilon,
        remarks=left_unread({*privacy, *config}, {*_FIELDS, "privacy"}),
        notes=(note,),
        exact=False,
    )


def _positive(epsilon: Any) -> float:
    try:
        return float(validate.positive(epsilon=epsilon))
    except OverflowError:
        raise ValueError("epsilon is out of range") from None
