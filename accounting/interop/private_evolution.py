"""Logs of private evolution (DPSDA), `pe.dp.Gaussian`: one line for each run of its generator.

The line has ε, δ, the noise multiplier and the number of iterations, which is that of noisy histograms: one less than
the schedule of sample sizes has entries. Each record's votes are scaled to length 1, and votes for all labels get noise
of that deviation.

Source: `pe/dp/gaussian.py`, `pe/runner/pe.py` and `pe/histogram/nearest_neighbors.py` of microsoft/DPSDA at 9078c67
(private-evolution 0.0.1).
"""

from __future__ import annotations

import math
import re

from dp_accounting import dp_event

from dpassay.accounting.interop.state import RepeatedEvent, State
from dpassay.base import validate

_NUMBER = r"((?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|inf)"
_LINE = re.compile(
    rf"DP epsilon={_NUMBER}, delta={_NUMBER}, noise_multiplier={_NUMBER}, num_iterations=(\d{{1,9}})\.?\s*$",
    re.MULTILINE,
)
_BEGINS = "DP epsilon="
_MAX_LINES = 1000


def found_text(text: str) -> State | None:
    """The state in a log; None if it has no such line."""
    said = text.count(_BEGINS)
    if not said:
        return None
    lines = _LINE.findall(text)
    if len(lines) != said or said > _MAX_LINES:
        raise ValueError("has a line of private evolution that begins with 'DP epsilon=', but lacks one of its numbers")
    parts, deltas = [], set()
    for _, delta, noise, count in lines:
        deltas.add(float(validate.open_probability(delta=float(delta))))
        deviation = float(validate.non_negative(noise_multiplier=float(noise)))
        times = validate.integer(num_iterations=int(count))
        event = dp_event.GaussianDpEvent(deviation) if deviation else dp_event.NonPrivateDpEvent()
        if times:
            parts.append(RepeatedEvent(event, times))
    notes = [
        "Each record voted once in each iteration, with votes of length 1 at most; with vote_normalization_level "
        "'client' all votes of a client together.",
        "The shares of labels among the generated texts are public: where fraction_per_label_id is not given, they are "
        "those of the private data, without noise.",
        "The noise is that of NumPy's generator, taken as an exact Gaussian with randomness that nobody knows.",
    ]
    if len(lines) > 1:
        notes.append("Each run in the log counts to the end of its schedule, even if it was resumed or cut short.")
    else:
        notes.append("The run got to the end of its schedule, once.")
    stated = float(lines[0][0]) if len(lines) == 1 else math.inf
    return State(
        library="private evolution",
        what="a log of private evolution",
        parts=tuple(parts),
        delta=deltas.pop() if len(deltas) == 1 else None,
        stated=stated if math.isfinite(stated) else None,
        notes=tuple(notes),
        exact=len(lines) == 1,
    )
