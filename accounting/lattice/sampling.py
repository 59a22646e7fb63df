"""Compositions on samples and in random steps, as components."""

from __future__ import annotations

import math
from dataclasses import replace

from dpassay.accounting.lattice import allocation, components
from dpassay.accounting.lattice.components import DIRECTIONS, Component
from dpassay.accounting.lattice.discretized import upper_product
from dpassay.accounting.lattice.laws import Law, Sampled, Symmetrized
from dpassay.accounting.lattice.normal_mixtures import NormalMixtures
from dpassay.accounting.lattice.products import Composition, factor_of, key_of, laws_of, mu_of


def poisson_sampled(composition: Composition, rate: float) -> Component | None:
    """See `DominatingPair.poisson_sampled`, at a rate in (0, 1) of what is not empty; None if it reveals nothing."""
    part, count = composition[0]
    if (mu := mu_of(composition)) is not None:
        sampled = components.gaussian_mixture([1 - rate, rate], [0.0, mu], 1.0, mirrored=False)
        if sampled is None or all(each.tight for each, _ in composition):
            return sampled
        return replace(sampled, tight=False)
    single = len(composition) == count == 1 and not part.add.upper_only
    # A product bounds the curve of its own direction to a relative error, and that of the other to an absolute one.
    law = part.remove if single else upper_product(laws_of(composition, "remove"))
    other = (part.add if single else upper_product(laws_of(composition, "add"))).swapped()
    remove, add = Sampled(law, rate), Sampled(other, rate).swapped()
    label = f"sampled({rate!r}, {part.label if single else key_of(composition)})"
    tight, alone = single and part.tight and part.below is None, single and part.tight_alone
    return Component(remove, add, label, None, tight, alone, log_factor=math.log(factor_of(composition)))


def exchanged(composition: Composition, rate: float) -> Component:
    """See `DominatingPair.exchanged_in_samples`; the rate is in (0, 1) and something is composed."""
    part, count = composition[0]
    single = len(composition) == count == 1 and not part.add.upper_only
    law: Law
    if (mu := mu_of(composition)) is not None:
        law = NormalMixtures([1 - rate, rate], [0.0, mu])
    else:
        law = Sampled(part.remove if single else upper_product(laws_of(composition, "remove")), rate)
    tight = (mu is not None or (single and part.below is None)) and all(known.tight for known, _ in composition)
    law, label = Symmetrized(law), f"exchanged({rate!r}, {key_of(composition)})"
    component = Component(law, law, label, tight=tight, tight_alone=True, symmetric=True)
    return replace(component, log_factor=math.log(factor_of(composition)))


_MOST_EXCESS = 1e-2  # what an upper bound may be too large by, relatively, before there is none
_LOST = 1e-5  # what a lower bound may lose


def allocated(composition: Composition, steps: int) -> Component | None:
    """See `DominatingPair.allocated`; at least 2 steps, and something is composed. None if it reveals nothing.

    Raises:
        ValueError: if the losses of one step fit no grid.
    """
    part, count = composition[0]
    single = len(composition) == count == 1 and part.below is None and not part.log_factor
    if single and part.remove.lowest == part.remove.highest == 0 and not part.remove.infinity_mass:
        return None
    inner, few = part.label if single else repr(key_of(composition)), min(steps, allocation.MAX_STEPS)
    found, forward = [], part.remove
    for direction, side in zip(DIRECTIONS, (1, -1), strict=True):
        law = getattr(part, direction) if single else upper_product(laws_of(composition, direction))
        found.append(allocation.upper_law_of(allocation.LawOfStep(f"{direction} {inner}", law), few, side))
    (remove, excess), (add, other_excess) = found
    if not max(excess, other_excess) <= _MOST_EXCESS:
        raise ValueError("the losses of one step are too small, or too rare, to be counted in random steps")
    label, factor = f"allocation({inner}, {few})", steps * math.log(factor_of(composition))
    component = replace(
        components.of_laws(remove, add.swapped(), label=label), log_factor=max(excess, other_excess) + factor
    )
    if not (single and part.tight and not part.tight_alone and steps == few) or forward.upper_only:
        return replace(component, tight=False)
    try:
        lower, excess = allocation.lower_law_of(allocation.LawOfStep(inner, forward), steps)
    except ValueError:
        return replace(component, tight=False)
    if not excess <= _LOST:
        return replace(component, tight=False)
    below = components.of_laws(lower, label=f"below({label})")
    return replace(component, below=replace(below, log_factor=-excess * (1 + excess)))
