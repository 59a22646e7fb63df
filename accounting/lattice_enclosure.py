"""Certified answers of a composition of laws in one direction: choose a lattice, compose, and refine until narrow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cupel.accounting.bounds import Interval
from cupel.accounting.lattice_convolution import TooFine, products
from cupel.accounting.lattice_curve import Curve
from cupel.accounting.lattice_guess import Cumulants, Saddle
from cupel.accounting.lattice_measure import Measure, pair_of, rounded_step
from cupel.accounting.laws import Floats, Law

Composed = Sequence[tuple[Law, int]]

_ATTEMPTS = 7


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A lattice for one question.

    Attributes:
        step: distance of lattice points.
        tilt: λ of the product.
        cut: P-mass that each law may send to infinity.
        left: P-mass that each law may merge on the left.
        outside: tilted mass of the product that may lie outside its window.
    """

    step: float
    tilt: float
    cut: float
    left: float
    outside: float


class Enclosure:
    """The curve δ(ε) of a product of laws in one direction, enclosed around the losses that a question asks about."""

    def __init__(self, laws: Composed) -> None:
        self.laws = list(laws)
        self.count = sum(count for _, count in laws)
        self.highest = sum(count * law.highest for law, count in laws)
        self.upper_only = any(law.upper_only for law, _ in laws)
        self._cumulants: dict[float, Cumulants] = {}

    def epsilon(self, delta: float, width: float) -> tuple[Interval, bool]:
        """ε(δ), which may be negative, and whether upper − lower ≤ width·upper."""
        cumulants = self.cumulants(delta)
        saddle = cumulants.at_delta(delta)
        # How precisely δ must be known: an ε that is off by w·ε is a δ off by about λ·w·ε of itself.
        scale = max(saddle.epsilon, 0.02 * saddle.spread, 1e-9)
        precision = min(1.0, max(saddle.tilt, 1e-3 / (saddle.spread + 1e-12)) * scale * width)
        plan = self._plan(cumulants, saddle, width * scale, precision, delta)

        def ask(above: Curve, below: Curve | None) -> tuple[float, float]:
            return (-math.inf if below is None else below.epsilon(delta)), above.epsilon(delta)

        return self._refined(plan, ask, lambda low, high: high <= 0 or high - max(low, 0.0) <= width * high)

    def delta(self, epsilon: float, width: float) -> tuple[Interval, bool]:
        """δ(ε) for ε ≥ 0, and whether upper − lower ≤ width·upper."""
        if epsilon >= self.highest:
            return Interval(self.certain(-1), self.certain(1)), True
        cumulants = self.cumulants(1e-12)
        saddle = cumulants.at_epsilon(epsilon)
        wanted = max(math.exp(min(saddle.log_delta, 0.0)), 1e-300)
        if wanted < 1e-11:
            cumulants = self.cumulants(wanted)
            saddle = cumulants.at_epsilon(epsilon)
        plan = self._plan(cumulants, saddle, width / (saddle.tilt + 1 / (saddle.spread + 1e-12)), width, wanted)
        point = np.array([epsilon])

        def ask(above: Curve, below: Curve | None) -> tuple[float, float]:
            return (0.0 if below is None else float(below.delta(point)[0])), float(above.delta(point)[0])

        return self._refined(plan, ask, lambda low, high: high - low <= width * high)

    def blowup(self, p: float, width: float) -> tuple[Interval, bool]:
        """sup{P(E): Q(E) ≤ p}, and whether upper − lower ≤ width·upper."""
        plan = self.plan_for_level(p, width)
        point = np.array([p])

        def ask(above: Curve, below: Curve | None) -> tuple[float, float]:
            return (p if below is None else float(below.blowup(point)[0])), float(above.blowup(point)[0])

        return self._refined(plan, ask, lambda low, high: high - low <= width * high)

    def profile(self, epsilons: Floats) -> tuple[Floats, Floats]:
        """Bounds on δ at each ε ≥ 0, the best of lattices for several of them."""
        low, high = np.zeros(epsilons.size), np.ones(epsilons.size)
        for point in np.unique(np.quantile(epsilons, [0.0, 0.25, 0.5, 0.75, 1.0])):
            if point >= self.highest:
                continue
            above, below = self._curves_or_coarser(self.plan_for_loss(float(point), 1e-3), 1 / 3)
            high = np.minimum(high, above.delta(epsilons))
            low = low if below is None else np.maximum(low, below.delta(epsilons))
        outside = epsilons >= self.highest
        return np.where(outside, self.certain(-1), low), np.where(outside, self.certain(1), high)

    def blowups(self, ps: Floats) -> tuple[Floats, Floats]:
        """Bounds on the blow-up of each p in (0, 1), the best of lattices for several of them."""
        low, high = ps.copy(), np.ones(ps.size)
        points = np.exp(np.quantile(np.log(ps), [0.0, 0.25, 0.5, 0.75, 1.0]))
        for point in np.unique(np.clip(points, 1e-280, 0.999)):
            above, below = self._curves_or_coarser(self.plan_for_level(float(point), 1e-3), 1 / 3)
            high = np.minimum(high, above.blowup(ps))
            low = low if below is None else np.maximum(low, below.blowup(ps))
        return np.minimum(low, high), high

    def _curves_or_coarser(self, plan: Plan, factor: float) -> tuple[Curve, Curve | None]:
        step = plan.step * factor
        while True:
            try:
                return self.curves(Plan(step, plan.tilt, plan.cut, plan.left, plan.outside))
            except TooFine:
                step *= 4

    def plan_for_level(self, p: float, width: float) -> Plan:
        """A lattice for the blow-up of p."""
        cumulants = self.cumulants(min(p, 0.1) * 1e-3)
        saddle = cumulants.at_level(min(p, 0.999))
        wanted = max(math.exp(min(saddle.log_delta, 0.0)), p * 1e-3)
        room = width / (saddle.tilt + 1 / (saddle.spread + 1e-12))
        return self._plan(cumulants, saddle, room, width, min(wanted, 0.5))

    def plan_for_loss(self, epsilon: float, width: float) -> Plan:
        """A lattice for δ near ε."""
        cumulants = self.cumulants(1e-12)
        saddle = cumulants.at_epsilon(epsilon)
        wanted = min(max(math.exp(min(saddle.log_delta, 0.0)), 1e-30), 0.5)
        room = width / (saddle.tilt + 1 / (saddle.spread + 1e-12))
        return self._plan(cumulants, saddle, room, width, wanted)

    def certain(self, side: int) -> float:
        """P(loss = ∞) of the product, rounded to a side."""
        if any(law.certain >= 1 for law, _ in self.laws):
            return 1.0
        exact = -math.expm1(math.fsum(count * math.log1p(-law.certain) for law, count in self.laws))
        return min(1.0, max(0.0, exact * (1 + side * 1e-13)))

    def cumulants(self, delta: float) -> Cumulants:
        tail = 10.0 ** math.floor(math.log10(max(delta, 1e-290) / self.count) - 4)
        if tail not in self._cumulants:
            self._cumulants[tail] = Cumulants([(law.pruned(tail), count) for law, count in self.laws], tail)
        return self._cumulants[tail]

    def _plan(self, cumulants: Cumulants, saddle: Saddle, room: float, precision: float, delta: float) -> Plan:
        """Room is what ε may be off by; connecting dots and tangents cost n(λ + 1)h²/8 together."""
        tilt = 0.6 * saddle.tilt
        cut = 1e-2 * precision * delta / self.count
        left = min(1e-4, precision) * 1e-6 / self.count
        step = 3 * math.sqrt(8 * 0.85 * room / (self.count * (1 + saddle.tilt)))
        widest = max(high - low for low, high in (law.pruned(cut).support(cut) for law, _ in self.laws))
        step = min(step, widest / 24, saddle.spread / 4 if self.count > 1 else math.inf)
        # Of the tilted product this much lies beyond ε.
        log_share = min(0.0, saddle.log_delta - cumulants.value(tilt) + tilt * saddle.epsilon)
        return Plan(step, tilt, cut, left, max(1e-2 * precision * math.exp(log_share), 1e-280))

    def curves(self, plan: Plan) -> tuple[Curve, Curve | None]:
        """The product on the plan's lattice, from above and from below (None if nothing is known from below)."""
        step = rounded_step(aligned_step(self.laws, plan.step))
        above: list[tuple[Measure, int]] = []
        below: list[tuple[Measure, int]] = []
        for law, count in self.laws:
            measures = pair_of(law.pruned(plan.cut), step, plan.cut, plan.left)
            above.append((measures[0], count))
            if measures[1] is not None:
                below.append((measures[1], count))
        if self.upper_only or len(below) < len(above):
            return Curve(products([above], plan.tilt, plan.outside)[0], above=True), None
        upper, lower = products([above, below], plan.tilt, plan.outside)
        return Curve(upper, above=True), Curve(lower, above=False)

    def _refined(
        self,
        plan: Plan,
        ask: Callable[[Curve, Curve | None], tuple[float, float]],
        narrow: Callable[[float, float], bool],
    ) -> tuple[Interval, bool]:
        """The answer on finer and finer lattices, the best of both sides, until it is narrow enough."""
        low, high = -math.inf, math.inf
        step = plan.step
        for _ in range(_ATTEMPTS):
            try:
                curves = self.curves(Plan(step, plan.tilt, plan.cut, plan.left, plan.outside))
            except TooFine:
                break
            found = ask(*curves)
            low, high = max(low, found[0]), min(high, found[1])
            if self.upper_only:
                if step < plan.step / 4:
                    break
                step /= 3.2
                continue
            if narrow(low, high):
                return Interval(min(low, high), high), True
            step *= self._shrink(found, narrow)
        return Interval(min(low, high), high), False

    def _shrink(self, found: tuple[float, float], narrow: Callable[[float, float], bool]) -> float:
        """How much finer the next lattice is: the width falls with the square of the step, or with the step."""
        low, high = found
        if not math.isfinite(high) or not math.isfinite(low):
            return 0.25
        for factor in (0.64, 0.32, 0.16, 0.08, 0.04, 0.02, 0.01, 0.003, 0.001):
            middle = (low + high) / 2
            if narrow(middle - factor * (high - low) / 2, middle + factor * (high - low) / 2):
                break
        power = 1.0 if any(law.discrete for law, _ in self.laws) else 0.5
        return min(0.7, max(0.9 * factor**power, 0.02))


def aligned_step(laws: Composed, step: float) -> float:
    """The largest step that is not above `step` and of which the atoms' distances are multiples, where there is one.

    A law that is all atoms at equal distances needs no finer lattice than those.
    """
    for law, _ in laws:
        if law.spacing:
            alone = law.discrete and len(laws) == 1
            return law.spacing if alone else law.spacing / max(1, math.ceil(law.spacing / step))
    return step
