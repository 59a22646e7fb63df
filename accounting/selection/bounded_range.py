"""ε and δ of adaptively composed bounded-range selections, such as tokens sampled from a softmax.

A selection is η-bounded-range (Durfee and Rogers 2019) if for all neighbours some t has log P(y)/Q(y) in [t − η, t] for
every outcome y. Softmax of scores at temperature τ is η-bounded-range with η = range/τ, where range is the largest
max Δ − min Δ of the change Δ of the scores between neighbours. Such a selection is η-DP and η²/8-zCDP.

The tight bound for n adaptively chosen selections is a recursion over functions, which `selection_curve` encloses for n
up to about a thousand. Longer sequences are cut into blocks; the product of the blocks' pairs dominates them.
Selections of several ranges and other mechanisms may alternate.

Proof: docs/proofs/selection.md, Theorems 1 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.bounds import Bound, Direction, Interval, Rigor
from dpassay.accounting.conversions import formulas
from dpassay.accounting.lattice.pairs import DominatingPair
from dpassay.accounting.selection.worst_case import SMALLEST_DELTA, Selections, extended_to_negative, pure_delta
from dpassay.base import validate
from dpassay.base.arrays import Floats

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
        eta: the range of each selection, in nats; a sequence for several kinds of selection, in any order.
        count: the number of selections of each kind, at least 0.
        delta: δ in (0, 1).
        method: ``zcdp`` (ρ = nη²/8, converted at the best order), ``pure`` (nη), ``adaptive`` (the largest ε over all
            adversaries; for up to 1024 selections of one range `interval` encloses it), ``single_step`` (the product of
            the worst single selections, for comparison: it exceeds zcdp for many selections), or ``best``, the least of
            the first three.
        adjacency: the neighbouring relation that η refers to.

    Returns:
        A certified bound; its `method` names the formula that gave it.

    Raises:
        ValueError: for ``adaptive`` and ``single_step`` if η is below 1e-5 or above 100, or √(Σ η²)/2 is above 20:
            float64 does not suffice.

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
            else (pair(kinds, least).epsilon(delta).upper, None)
        ),
        "single_step": lambda: (pair(kinds, least, 1).epsilon(delta).upper, None),
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

    Arguments, methods, errors and sources as for `bounded_range_epsilon`; ``adaptive`` is tight down to δ = 1e-15.
    """
    kinds = Selections.of(eta, count)
    validate.non_negative(epsilon=epsilon)
    answers: dict[str, Callable[[], Answer]] = {
        "zcdp": lambda: (formulas.delta_from_zcdp(kinds.rho, epsilon), None),
        "pure": lambda: (float(pure_delta(kinds.pure_epsilon, np.asarray(epsilon))), None),
        "adaptive": lambda: (
            _of_interval(kinds.curve().delta(epsilon))
            if kinds.single_block
            else (pair(kinds).delta(epsilon).upper, None)
        ),
        "single_step": lambda: (pair(kinds, block=1).delta(epsilon).upper, None),
    }
    return _bound(answers, method, kinds, adjacency, quantity="delta", at=epsilon)


def bounded_range_profile(eta: float | Sequence[float], count: int, epsilons: ArrayLike) -> Floats:
    """Upper bounds on δ(ε) of adaptively composed bounded-range selections, at many ε.

    Each value is the least of ``adaptive``, ``zcdp`` and ``pure``, or of the last two if the first has no bound. The
    curve holds in both directions. It composes with other mechanisms like the curve of one mechanism, even if they run
    in between.

    Args:
        eta, count: as for `bounded_range_epsilon`.
        epsilons: finite numbers of either sign, any shape.

    Returns:
        δ in [0, 1], the shape of `epsilons`. Below 1e-15 it is nearly that of ``zcdp`` or ``pure``.

    Source: as for `bounded_range_epsilon`; Vadhan and Zhang (2023) for compositions.
    """
    kinds = Selections.of(eta, count)
    points = np.asarray(epsilons, dtype=np.float64)
    if not np.isfinite(points).all():
        raise ValueError("epsilons must be finite numbers")
    if kinds.refusal is not None:
        return extended_to_negative(kinds.simple_delta, points)
    if kinds.single_block:
        result = kinds.curve()
        return extended_to_negative(
            lambda distances: np.minimum(kinds.simple_delta(distances), result.upper_at(distances)), points
        )
    order = np.argsort(points, axis=None)
    upper = np.empty(points.size)
    upper[order] = pair(kinds).privacy_profile(points.ravel()[order])[1]
    return np.minimum(extended_to_negative(kinds.simple_delta, points), upper.reshape(points.shape))


def bounded_range_pair(
    eta: float | Sequence[float], count: int, *, smallest_delta: float = SMALLEST_DELTA
) -> DominatingPair:
    """A dominating pair of adaptively composed bounded-range selections, to compose with other mechanisms.

    Only its upper bounds are known. It is the product of the blocks' pairs; the pair of ρ-zCDP if ``adaptive`` has no
    bound.

    Args:
        eta, count: as for `bounded_range_epsilon`.
        smallest_delta: the δ in (0, 1) down to which it is tight.

    Source: as for `bounded_range_profile`.
    """
    kinds = Selections.of(eta, count)
    validate.open_probability(smallest_delta=smallest_delta)
    if kinds.refusal is not None:
        return DominatingPair.concentrated(Fraction(kinds.rho))
    return pair(kinds, smallest_delta)


def pair(kinds: Selections, smallest_delta: float = SMALLEST_DELTA, block: int | None = None) -> DominatingPair:
    """The product of pairs for blocks of `block` selections, by default the longest blocks."""
    parts = kinds.components(smallest_delta) if block is None else kinds.components(smallest_delta, block)
    return DominatingPair.identity().compose(*(DominatingPair._of(part).self_compose(count) for part, count in parts))


def _of_interval(result: Interval) -> Answer:
    return result.upper, result


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
