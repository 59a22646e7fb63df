"""Configurations of jax_privacy, `execution_plan.BandMFConfig`, as JSON: ``dataclasses.asdict``, a list as strategy.

Records are split into groups, one per band, and a batch is a Poisson sample of one group, in turn. So a record is in at
most one of b consecutive steps, and the run costs as much as ⌈n/b⌉ Gaussians on Poisson samples, if the columns of the
strategy matrix, which has b bands, are of norm 1.

The neighbouring relation follows from the configuration: without a number of examples, groups are drawn independently,
for add_remove; with one, they are of equal size, for zero_out.

Proof: docs/proofs/sampling.md, Theorem 5.

Source: Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023), Theorem 4; `execution_plan.py`,
`accounting.py` and `batch_selection.py` of jax_privacy 2.3.0.dev0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dp_accounting import dp_event

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.events import TruncatedPoissonSampledDpEvent
from dpassay.accounting.interop.conditions import Normalizer, Sampler
from dpassay.accounting.interop.names import shown
from dpassay.accounting.interop.state import Part, RepeatedEvent, SampledGaussian, State
from dpassay.base import validate

_NEEDED = {"iterations", "expected_participations", "strategy"}
_KNOWN = _NEEDED | {
    *("noise_multiplier", "l2_clip_norm", "rescale_to_unit_norm", "normalize_by", "truncated_batch_size"),
    *("num_examples", "column_normalize"),
}
_MAX_BANDS = 100_000


def recognize(content: Any) -> State | None:
    """The state in JSON content; None if there is none."""
    if not isinstance(content, Mapping) or not set(content) >= _NEEDED:
        return None
    if unknown := sorted(set(content) - _KNOWN):
        raise ValueError(
            f"looks like a BandMFConfig of jax_privacy, but has a field {shown(unknown[0])} that is not known"
        )
    try:
        return _state(content)
    except (TypeError, AttributeError, OverflowError):
        raise ValueError("looks like a BandMFConfig of jax_privacy, but a field has another type") from None


def _state(content: Mapping[str, Any]) -> State:
    iterations = validate.integer(minimum=1, iterations=content["iterations"])
    norm, bands = _strategy(content["strategy"])
    if bands > iterations:
        raise ValueError(f"strategy has {bands} bands, more than the {iterations} iterations")
    noise = content.get("noise_multiplier")
    if noise is None:
        raise ValueError("is a BandMFConfig of jax_privacy without noise_multiplier; save it after calibrate()")
    noise = float(validate.non_negative(noise_multiplier=noise))
    taken = float(validate.non_negative(expected_participations=content["expected_participations"]))
    rate = float(validate.probability(sampling_probability=taken * bands / iterations))
    rounds = math.ceil(iterations / bands)
    records = content.get("num_examples")
    if records is not None:
        validate.integer(minimum=1, num_examples=records)
    notes = ["The run was this configuration, once, to its end; each batch was drawn as it says."]
    if bands > 1:
        notes.append(
            f"A record is in at most one of {bands} consecutive steps, always in the same place, and the noise of the "
            "steps is correlated by the inverse of the strategy matrix."
        )
    exact = True
    if content.get("column_normalize", False) and norm != 1:
        # The library gives the columns norm 1, and then scales the noise by the norm that they had.
        noise *= min(1.0, norm * (1 - 2**-40))
        exact = False
        if norm < 0.999:
            notes.append(
                f"With column_normalize the library scales its noise by {norm:.4g}, the norm of a strategy whose "
                "columns it has already divided by their norms. The noise counts as that much smaller."
            )
    parts: tuple[Part, ...] = ()
    limit = content.get("truncated_batch_size")
    if limit:
        if records is None:
            raise ValueError("truncated_batch_size of a BandMFConfig of jax_privacy needs num_examples")
        validate.integer(minimum=1, truncated_batch_size=limit)
        inner = dp_event.GaussianDpEvent(noise)
        group = max(1, records // bands)  # the remainder is never sampled
        parts = (RepeatedEvent(TruncatedPoissonSampledDpEvent(rate, group, limit, inner), rounds),)
        notes.append(
            "Each step clipped each record's contribution by itself, and released nothing but the noisy sum; the noise "
            "was drawn from an exact Gaussian with fresh randomness that nobody knows."
        )
    elif rate:
        parts = (SampledGaussian(noise, rate, rounds),)
    return State(
        library="jax_privacy",
        what="a BandMFConfig of jax_privacy",
        parts=parts,
        adjacency=Adjacency.ADD_REMOVE if records is None else Adjacency.ZERO_OUT,
        sampler=Sampler.POISSON,
        records=records,
        normalizer=Normalizer.PUBLIC,  # the configuration's normalize_by
        notes=tuple(notes),
        exact=exact,
    )


def _strategy(coefficients: Any) -> tuple[float, int]:
    """The norm of the strategy's coefficients, and how many bands they are."""
    if not isinstance(coefficients, Sequence) or isinstance(coefficients, str) or not coefficients:
        raise ValueError("strategy must be a list of at least one number")
    if len(coefficients) > _MAX_BANDS:
        raise ValueError(f"strategy has more than {_MAX_BANDS} coefficients")
    numbers = [float(validate.finite(strategy=item)) for item in coefficients]
    if numbers[0] == 0:
        raise ValueError("strategy must not begin with 0: its matrix has no inverse")
    return float(validate.positive(norm_of_strategy=math.hypot(*numbers))), len(numbers)
