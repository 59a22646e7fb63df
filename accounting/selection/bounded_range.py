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
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency
from cupel.accounting.bounds import Bound, Direction, Interval, Rigor
from cupel.accounting.conversions import formulas
from cupel.accounting.conversions.formulas import Floats
from cupel.accounting.selection.curve import Curve, curve

if TYPE_CHECKING:
    from cupel.accounting.lattice.pairs import DominatingPair

METHODS = ("best", "adaptive", "zcdp", "pure", "single_step")

_UNIT = 2.0**-53
_LEAST_RANGE, _MOST_RANGE, _MOST_SPREAD = 1e-5, 100.0, 20.0  # of η, and of η√n/2: float64 has no digits for more
_LONGEST = 1024  # selections that are followed one by one; more are cut into blocks
_WORK = 4e6  # lattice points over all steps
_COARSEST, _FINEST = 8, 1024  # lattice steps an η, powers of 2, so that η = m·h exactly
_SMALLEST_DELTA = 1e-15
_FLOOR = 1e-5  # of the smallest δ: what the curve is not followed below

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
        method: ``zcdp`` (ρ = nη²/8, converted at the best order), ``pure`` (nη), ``adaptive`` (the optimum over all
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
    kinds = _Kinds.of(eta, count)
    validate.open_probability(delta=delta)
    least = 10.0 ** max(math.floor(math.log10(delta)), -280)
    answers: dict[str, Callable[[], Answer]] = {
        "zcdp": lambda: (formulas.epsilon_from_zcdp(kinds.rho, delta), None),
        "pure": lambda: (kinds.pure, None),
        "adaptive": lambda: (
            _of_interval(kinds.curve(least).epsilon(delta))
            if kinds.followed
            else (kinds.pair(least).epsilon(delta).upper, None)
        ),
        "single_step": lambda: (kinds.pair(least, 1).epsilon(delta).upper, None),
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
    kinds = _Kinds.of(eta, count)
    validate.non_negative(epsilon=epsilon)
    answers: dict[str, Callable[[], Answer]] = {
        "zcdp": lambda: (formulas.delta_from_zcdp(kinds.rho, epsilon), None),
        "pure": lambda: (float(_pure_delta(kinds.pure, np.asarray(epsilon))), None),
        "adaptive": lambda: (
            _of_interval(kinds.curve().delta(epsilon)) if kinds.followed else (kinds.pair().delta(epsilon).upper, None)
        ),
        "single_step": lambda: (kinds.pair(block=1).delta(epsilon).upper, None),
    }
    return _bound(answers, method, kinds, adjacency, quantity="delta", at=epsilon)


def bounded_range_profile(eta: float | Sequence[float], count: int, epsilons: ArrayLike) -> Floats:
    """Upper bounds on the hockey-stick curve δ(ε) of adaptively composed bounded-range selections.

    At each ε the least of the methods ``adaptive``, ``zcdp`` and ``pure``, or of the last two where the first has no
    bound. The curve holds for both orders of the neighbours, since bounded range is symmetric in them. It composes like
    that of one mechanism with any others, also with some that run in between and that later selections depend on.

    Args:
        eta: the range of each selection, in nats; several ranges, for several kinds of selection in any order.
        count: how many selections of each kind, at least 0.
        epsilons: any shape, any real numbers.

    Returns:
        δ in [0, 1], the shape of `epsilons`; at δ below 1e-15 that of ``zcdp`` or ``pure``, nearly.

    Source: as for `bounded_range_epsilon`; Vadhan and Zhang (2023) for compositions.
    """
    kinds = _Kinds.of(eta, count)
    points = np.asarray(epsilons, dtype=np.float64)
    if not np.isfinite(points).all():
        raise ValueError("epsilons must be finite numbers")
    if kinds.refusal is not None:
        return _both_signs(kinds.plain, points)
    if kinds.followed:
        found = kinds.curve()
        return _both_signs(lambda distances: np.minimum(kinds.plain(distances), found.upper_at(distances)), points)
    order = np.argsort(points, axis=None)
    upper = np.empty(points.size)
    upper[order] = kinds.pair().privacy_profile(points.ravel()[order])[1]
    return np.minimum(_both_signs(kinds.plain, points), upper.reshape(points.shape))


def bounded_range_pair(
    eta: float | Sequence[float], count: int, *, smallest_delta: float = _SMALLEST_DELTA
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
    from cupel.accounting.lattice.pairs import DominatingPair

    kinds = _Kinds.of(eta, count)
    validate.open_probability(smallest_delta=smallest_delta)
    if kinds.refusal is not None:
        return DominatingPair.concentrated(Fraction(kinds.rho))
    return kinds.pair(smallest_delta)


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Selections of several ranges: (η, how many), each η once."""

    counts: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, eta: float | Sequence[float], count: int) -> _Kinds:
        validate.integer(count=count)
        ranges = (eta,) if isinstance(eta, int | float) else tuple(eta)
        counts: Counter[float] = Counter()
        for value in ranges:
            counts[float(validate.positive(eta=value))] += count
        if not counts:
            raise ValueError("eta must be a range or a list of ranges, not an empty list")
        return cls(tuple(sorted(counts.items())))

    @property
    def pure(self) -> float:
        return formulas.up(sum((Fraction(eta) * count for eta, count in self.counts), start=Fraction(0)))

    @property
    def rho(self) -> float:
        return formulas.up(sum((Fraction(eta) ** 2 * count / 8 for eta, count in self.counts), start=Fraction(0)))

    @property
    def followed(self) -> bool:
        """Whether the worst case is followed selection by selection."""
        return len(self.counts) == 1 and self.counts[0][1] <= _LONGEST

    @property
    def refusal(self) -> str | None:
        """Why there is no adaptive bound, or None."""
        spread = math.sqrt(2 * self.rho)
        for eta, _ in self.counts:
            if not _LEAST_RANGE <= eta <= _MOST_RANGE:
                return f"adaptive needs eta between {_LEAST_RANGE:g} and {_MOST_RANGE:g}, not {eta:g}; use zcdp or pure"
        if spread > _MOST_SPREAD:
            return f"adaptive needs √(Σ eta²)/2 of at most {_MOST_SPREAD:g}, not {spread:.4g}; use zcdp or pure"
        return None

    def plain(self, distances: Floats) -> Floats:
        """The lesser δ of zcdp and pure, ε ≥ 0."""
        return np.minimum(_pure_delta(self.pure, distances), _zcdp_delta(self.rho, distances))

    def curve(self, smallest_delta: float = _SMALLEST_DELTA) -> Curve:
        """The adaptive bound for selections of one range that are followed."""
        if reason := self.refusal:
            raise ValueError(reason)
        ((eta, count),) = self.counts
        floor = smallest_delta * _FLOOR
        reach = min(formulas.epsilon_from_zcdp(self.rho, floor), self.pure) / eta
        wanted = 2.0 ** math.floor(math.log2(_WORK / ((count + 1) * (0.7 * reach + 2))))
        return curve(eta, count, int(min(max(wanted, _COARSEST), _FINEST)), floor)

    def pair(self, smallest_delta: float = _SMALLEST_DELTA, block: int = _LONGEST) -> DominatingPair:
        """The product of pairs for blocks of at most `block` selections of one range."""
        from cupel.accounting.lattice.pairs import DominatingPair

        if reason := self.refusal:
            raise ValueError(reason)
        total = DominatingPair.identity()
        for eta, count in self.counts:
            if count:
                fewest = -(-count // block)  # of all numbers of blocks up to twice as many, one with the least excess
                blocks = min(range(fewest, 2 * fewest), key=lambda some: -count % some)
                each = _Kinds(((eta, -(-count // blocks)),))
                total = total.compose(each._profile(smallest_delta).self_compose(blocks))
        return total

    def _profile(self, smallest_delta: float) -> DominatingPair:
        from cupel.accounting.lattice.pairs import DominatingPair

        found, floor = self.curve(smallest_delta), smallest_delta * _FLOOR
        high = min(formulas.epsilon_from_zcdp(self.rho, floor), self.pure)

        def upper(epsilons: Floats) -> Floats:
            return _both_signs(lambda distances: np.minimum(self.plain(distances), found.upper_at(distances)), epsilons)

        return DominatingPair.profile(
            upper, low=-high, high=high, label=f"selections({self.counts!r}, {found.floor!r})"
        )


def _of_interval(found: Interval) -> Answer:
    return found.upper, found


def _bound(
    answers: dict[str, Callable[[], Answer]],
    method: str,
    kinds: _Kinds,
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


def _both_signs(deltas: Callable[[Floats], Floats], epsilons: Floats) -> Floats:
    """δ at ε of either sign from upper bounds at |ε|: δ(−ε) = 1 − e^{−ε} + e^{−ε} δ(ε), both orders being alike."""
    distances = np.abs(epsilons)
    there = deltas(distances)
    reflected = (np.exp(-distances) * there - np.expm1(-distances)) * (1 + 16 * _UNIT)
    return np.minimum(np.where(epsilons < 0, reflected, there), 1.0)


def _pure_delta(total: float, epsilons: Floats) -> Floats:
    """δ(ε) of pure `total`-DP, ε ≥ 0 (Kairouz, Oh and Viswanath 2015)."""
    exact = np.abs(np.expm1(np.minimum(epsilons - total, 0.0))) / (1 + math.exp(-total))
    return np.asarray(exact * (1 + 2.0**-49))


def _zcdp_delta(rho: float, epsilons: Floats) -> Floats:
    """δ(ε) of ρ-zCDP, ε ≥ 0, at the order (ε + ρ)/(2ρ), near the best; formula as in `log_delta_from_rdp`."""
    if rho == 0:
        return np.zeros(epsilons.shape)
    order = 1 + np.maximum((epsilons - rho) / (2 * rho), 2.0**-20)
    excess = order - 1
    terms = [excess * rho * order, -excess * epsilons, -excess * np.log1p(1 / excess), -np.log(order)]
    error = 32 * _UNIT * np.sum(np.abs(terms), axis=0)
    return np.asarray(np.exp(np.minimum(np.sum(terms, axis=0) + error, 0.0)) * (1 + 8 * _UNIT))
