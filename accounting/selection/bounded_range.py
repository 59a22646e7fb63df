"""Selections of bounded range, such as tokens drawn from a softmax: what many of them cost, chosen adaptively.

A selection is η-bounded-range (Durfee and Rogers 2019) if for all neighbours some t has log P(y)/Q(y) in [t − η, t]
for every outcome y. Softmax of scores at temperature τ is, with η = range/τ, range the largest max Δ − min Δ of the
change Δ of the scores between neighbours. Both laws sum to 1, so 0 ≤ t ≤ η, and a selection is η-DP; it is η²/8-zCDP
too. The best that is true of n of them, each chosen after the outcomes of those before it, is a recursion over
functions, F_n = T F_{n−1}, which `selection_curve` encloses for n up to some thousand.

Longer sequences are cut into blocks. A curve F_b is that of one pair of laws, and the product of the blocks' pairs
dominates the sequence: T takes a largest mean over the next loss, so it does no more before a mean over an independent
loss is taken than after; moving the means of one block outside of T for all others, block by block, leaves the product.
Selections of different ranges may alternate. Those of one range are an interactive mechanism whose curve is F_n, and
concurrent interactive mechanisms compose like pairs of laws with their curves (Vadhan and Zhang, "Concurrent
Composition Theorems for Differential Privacy", 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency
from cupel.accounting.bounds import Bound, Direction, Interval, Rigor
from cupel.accounting.conversions import formulas
from cupel.accounting.conversions.formulas import Floats
from cupel.accounting.lattice.pairs import DominatingPair
from cupel.accounting.selection.worst_case import SMALLEST_DELTA, Selections, extended_to_negative, pure_delta

METHODS = ("best", "adaptive", "zcdp", "pure", "single_step")

Answer = tuple[float, Interval | None]


def bounded_range_epsilon(
    eta: float | Sequence[float],
    count: int,
    delta: float,
    method: str = "best",
    *,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
) -> Bound:
    """An upper bound on the ε of adaptively composed bounded-range selections.

    Args:
        eta: the range of each selection, in nats; several ranges, for several kinds of selection in any order.
        count: how many selections of each kind, at least 0.
        delta: δ in (0, 1).
        method: ``zcdp`` (ρ = nη²/8, converted at the best order), ``pure_epsilon`` (nη), ``adaptive`` (the optimum over all
            adversaries, from above; for up to 1024 selections of one range `interval` encloses that optimum),
            ``single_step`` (the product of the worst single selections, worse than zcdp for many: for comparison), or
            ``best``, the least of the first three.
        adjacency: the neighbouring relation that η is stated for.

    Returns:
        A certified bound, whose `method` is the one that gave it.

    Raises:
        ValueError: for ``adaptive`` and ``single_step`` where float64 does not suffice: η below 1e-5 or above 100, or
            √(Σ η²)/2 above 20.

    Source: Dong, Durfee and Rogers (2020) for ``adaptive``; Cesar and Rogers, "Bounding, Concentrating, and Truncating"
        (2021), for ρ; Canonne, Kamath and Steinke (2020), Proposition 12, for its conversion.
    """
    kinds = Selections.of(eta, count)
    validate.open_probability(delta=delta)
    least = 10.0 ** max(math.floor(math.log10(delta)), -280)
    answers: dict[str, Callable[[], Answer]] = {
        "zcdp": lambda: (formulas.epsilon_from_zcdp(kinds.rho, delta), None),
        "pure": lambda: (kinds.pure_epsilon, None),
        "adaptive": lambda: (
            _of_interval(kinds.curve(least).epsilon(delta))
            if kinds.single_block
            else (_pair(kinds, least).epsilon(delta).upper, None)
        ),
        "single_step": lambda: (_pair(kinds, least, 1).epsilon(delta).upper, None),
    }
    return _bound(answers, method, kinds, adjacency, quantity="epsilon", delta=delta)


def bounded_range_delta(
    eta: float | Sequence[float],
    count: int,
    epsilon: float,
    method: str = "best",
    *,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
) -> Bound:
    """An upper bound on the δ at `epsilon` ≥ 0 of adaptively composed bounded-range selections.

    Arguments, methods, errors and sources are those of `bounded_range_epsilon`; ``adaptive`` is tight down to 1e-15.
    """
    kinds = Selections.of(eta, count)
    validate.non_negative(epsilon=epsilon)
    answers: dict[str, Callable[[], Answer]] = {
        "zcdp": lambda: (formulas.delta_from_zcdp(kinds.rho, epsilon), None),
        "pure": lambda: (float(pure_delta(kinds.pure_epsilon, np.asarray(epsilon))), None),
        "adaptive": lambda: (
            _of_interval(kinds.curve().delta(epsilon))
            if kinds.single_block
            else (_pair(kinds).delta(epsilon).upper, None)
        ),
        "single_step": lambda: (_pair(kinds, block=1).delta(epsilon).upper, None),
    }
    return _bound(answers, method, kinds, adjacency, quantity="delta", at=epsilon)


def bounded_range_profile(eta: float | Sequence[float], count: int, epsilons: ArrayLike) -> Floats:
    """Upper bounds on the hockey-stick curve δ(ε) of adaptively composed bounded-range selections.

    At each ε the least of the methods ``adaptive``, ``zcdp`` and ``pure_epsilon``, or of the last two where the first has no
    bound. The curve holds for both orders of the neighbours, since bounded range is symmetric in them. It composes like
    that of one mechanism with any others, also with some that run in between and that later selections depend on.

    Args:
        eta: the range of each selection, in nats; several ranges, for several kinds of selection in any order.
        count: how many selections of each kind, at least 0.
        epsilons: any shape, any real numbers.

    Returns:
        δ in [0, 1], the shape of `epsilons`; at δ below 1e-15 that of ``zcdp`` or ``pure_epsilon``, nearly.

    Source: as for `bounded_range_epsilon`; Vadhan and Zhang (2023) for compositions.
    """
    kinds = Selections.of(eta, count)
    points = np.asarray(epsilons, dtype=np.float64)
    if not np.isfinite(points).all():
        raise ValueError("epsilons must be finite numbers")
    if kinds.refusal is not None:
        return extended_to_negative(kinds.simple_delta, points)
    if kinds.single_block:
        found = kinds.curve()
        return extended_to_negative(
            lambda distances: np.minimum(kinds.simple_delta(distances), found.upper_at(distances)), points
        )
    order = np.argsort(points, axis=None)
    upper = np.empty(points.size)
    upper[order] = _pair(kinds).privacy_profile(points.ravel()[order])[1]
    return np.minimum(extended_to_negative(kinds.simple_delta, points), upper.reshape(points.shape))


def bounded_range_pair(
    eta: float | Sequence[float], count: int, *, smallest_delta: float = SMALLEST_DELTA
) -> DominatingPair:
    """A dominating pair of adaptively composed bounded-range selections, known from above, to compose with others.

    Args:
        eta: the range of each selection, in nats; several ranges, for several kinds of selection in any order.
        count: how many selections of each kind, at least 0.
        smallest_delta: the δ in (0, 1) down to which it is to be tight.

    Returns:
        The product of the blocks' pairs; where ``adaptive`` has no bound, the pair of ρ-zCDP.

    Source: as for `bounded_range_profile`.
    """
    kinds = Selections.of(eta, count)
    validate.open_probability(smallest_delta=smallest_delta)
    if kinds.refusal is not None:
        return DominatingPair.concentrated(Fraction(kinds.rho))
    return _pair(kinds, smallest_delta)


def _pair(kinds: Selections, smallest_delta: float = SMALLEST_DELTA, block: int | None = None) -> DominatingPair:
    """The product of pairs for blocks of selections; `block` is their length, by default the longest."""
    parts = kinds.components(smallest_delta) if block is None else kinds.components(smallest_delta, block)
    return DominatingPair.identity().compose(*(DominatingPair._of(part).self_compose(count) for part, count in parts))


def _of_interval(found: Interval) -> Answer:
    return found.upper, found


def _bound(
    answers: dict[str, Callable[[], Answer]],
    method: str,
    kinds: Selections,
    adjacency: Adjacency | str,
    *,
    quantity: str,
    delta: float | None = None,
    at: float | None = None,
) -> Bound:
    validate.one_of(METHODS, method=method)
    validate.one_of(tuple(Adjacency), adjacency=adjacency)
    names = [method] if method != "best" else ["zcdp", "pure"]
    if method == "best" and kinds.refusal is None:
        names.append("adaptive")
    (value, interval), name = min(((answers[name](), name) for name in names), key=lambda answer: answer[0][0])
    return Bound(
        direction=Direction.UPPER,
        value=value,
        method=name,
        rigor=Rigor.CERTIFIED,
        adjacency=Adjacency(adjacency),
        quantity=quantity,
        delta=delta,
        at=at,
        interval=interval,
    )
