"""Certified bounds on a composition of laws in one direction: choose a lattice, compose, and refine until narrow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dpassay.accounting.bounds import Interval
from dpassay.accounting.lattice.chernoff import tail_bound, tail_bound_epsilon
from dpassay.accounting.lattice.convolution import products
from dpassay.accounting.lattice.curve import OneSidedCurve
from dpassay.accounting.lattice.laws import UNIT, Law
from dpassay.accounting.lattice.measure import MAX_POINTS, Measure, TooManyPoints, enclosing_measures, rounded_step
from dpassay.accounting.lattice.saddle import Cumulants, Saddle
from dpassay.accounting.lattice.single_law import SingleLaw
from dpassay.base.arrays import Floats

Composed = Sequence[tuple[Law, int]]

ATTEMPTS = 7
_FIRST_WIDTH = 1e-3
"""The relative width of the first lattice that is tried."""
_ROUGH_WIDTH = 0.03
"""The relative width of the first lattice, if an upper bound only has to be below a target."""
_FEW_POINTS = 1 << 15
"""Lattices of fewer points are made finer: below this size the time goes to overhead, not to arrays."""
_MIN_DELTA = 1e-250
"""Below this δ sums of weights give no bound, and Chernoff's bound is used."""


@dataclass(frozen=True, slots=True, eq=False)
class LatticePlan:
    """A lattice for one question."""

    step: float  # distance of lattice points
    tilt: float  # λ of the product
    cut: float  # P-mass that each law may move to infinity
    outside: float  # tilted mass of the product that may lie outside its window
    slopes: tuple[float, float]  # exponents of Chernoff's bound on that mass, to the left and to the right
    supports: tuple[tuple[float, float], ...]  # the losses between which each law gets a lattice
    loss: float  # a guess of the loss of interest
    focus: float  # the loss above which the curve is needed
    log_delta: float  # a guess of log δ at `loss`


@dataclass(slots=True)
class _LatticeBounds:
    """The bounds found by the lattices so far."""

    low: float = -math.inf  # low and high: the best bounds
    high: float = math.inf
    step: float = 0.0  # step and last: the last lattice and its own bounds
    last: tuple[float, float] | None = None
    loss: float | None = None  # a better guess of the loss, if the first was far off

    def add(self, step: float, answer: tuple[float, float]) -> None:
        self.low, self.high = max(self.low, answer[0]), min(self.high, answer[1])
        self.step, self.last = step, answer

    @property
    def width(self) -> float:
        return _relative(self.low, self.high)

    @property
    def interval(self) -> Interval:
        return Interval(min(self.low, self.high), self.high)


class Enclosure:
    """The curve δ(ε) of a product of laws, with their counts, in one direction, enclosed around the losses of a
    question.

    With a target only an upper bound is computed, on no finer a lattice than is needed to get below the target.
    """

    def __init__(self, laws: Composed, *, target: float | None = None) -> None:
        self.laws = list(laws)
        self.count = sum(count for _, count in laws)
        self.highest = sum(count * law.highest for law, count in laws)
        self.upper_only = target is not None or any(law.upper_only for law, _ in laws)
        self._target = target
        self._discrete = any(law.discrete for law, _ in laws)
        self.first = (0.0, math.inf)
        """The bounds after the first lattices, which are the same for every width. Fallbacks are chosen by them, so
        that a narrower request never has a wider answer."""
        self._last_measures: dict[object, tuple[list[tuple[Measure, int]], list[tuple[Measure, int]]]] = {}
        self._kept: list[tuple[float, tuple[OneSidedCurve, OneSidedCurve | None]]] = []
        self._cut_laws: dict[float, tuple[list[Law], list[tuple[float, float]], Cumulants]] = {}

    def epsilon(self, delta: float, width: float) -> tuple[Interval, bool]:
        """ε(δ), with an upper end of at least 0, and whether upper − lower ≤ width·upper."""
        result, met = Interval(0.0, math.inf), False
        if delta > _MIN_DELTA and not self._too_large(delta):
            result, met = self._epsilon_by_lattices(delta, width)
        low, high = result.lower, result.upper
        if self.wide and self._target is None:
            high = min(high, tail_bound_epsilon(self.laws, delta))
            if not self.upper_only:  # each mechanism is a post-processing of the composition
                low = max(low, *(SingleLaw(law).epsilon(delta, 1.0)[0].lower for law, _ in self.laws))
        if self.infinity_mass(1) <= delta:
            high = min(high, max(self.highest + self._margin(), 0.0))
        return Interval(min(low, high), high), met or (self._target is None and _relative(low, high) <= width)

    def _too_large(self, delta: float) -> bool:
        """Whether finite losses beyond e^650 are more probable than δ: lattices count them as infinite."""
        end = np.array([650.0])
        large = [law for law, _ in self.laws if law.highest > 650 and not law.upper_only]
        return any(float(law.tails(end).p_above[0]) - law.infinity_mass > delta for law in large)

    @property
    def wide(self) -> bool:
        """Whether the first lattices gave no narrow answer."""
        return not _relative(*self.first) <= _FIRST_WIDTH

    def _epsilon_by_lattices(self, delta: float, width: float) -> tuple[Interval, bool]:
        first = self._prepared(self._cut(delta, _FIRST_WIDTH))[2].at_delta(delta)
        if first.epsilon < 0.1 * first.spread and self._at_zero() <= delta:
            return Interval(0.0, 0.0), True

        def planned(lattice_width: float, epsilon: float | None) -> LatticePlan:
            cut = self._cut(delta, min(lattice_width, _FIRST_WIDTH))
            if epsilon is None:
                saddle = first if lattice_width >= _FIRST_WIDTH else self._prepared(cut)[2].at_delta(delta)
            else:
                saddle = self._prepared(cut)[2].at_epsilon(epsilon)
                saddle = dataclasses.replace(saddle, epsilon=epsilon, log_delta=math.log(delta))
            scale = max(saddle.epsilon, 0.02 * saddle.spread, 1e-9)
            # A relative error w of ε is a relative error of about λ·w·ε of δ.
            precision = min(1.0, max(saddle.tilt, 1e-3 / (saddle.spread + 1e-12)) * scale * lattice_width)
            return self._plan(cut, saddle, lattice_width * scale, precision, dense=lattice_width < _ROUGH_WIDTH)

        def ask(upper: OneSidedCurve, lower: OneSidedCurve | None) -> tuple[float, float]:
            return (0.0 if lower is None else lower.epsilon(delta)), upper.epsilon(delta)

        close = self._target is not None and first.epsilon > 0.95 * self._target
        return self._refined(
            planned, ask, width, (_FIRST_WIDTH,) if close else self._lattice_widths(width), guessed=True
        )

    def _at_zero(self) -> float:
        """An upper bound on δ(0); it is also at most the sum of the parts' total variations."""
        apart = math.fsum(count * SingleLaw(law).delta(0.0, 1.0)[0].upper for law, count in self.laws)
        whole = self if self._target is None else Enclosure(self.laws)
        return min(apart * (1 + 1e-12), whole.delta(0.0, _FIRST_WIDTH)[0].upper)

    def delta(self, epsilon: float, width: float) -> tuple[Interval, bool]:
        """δ(ε) for ε ≥ 0, and whether upper − lower ≤ width·upper."""
        if self.infinity_mass(-1) >= 1:
            return Interval(1.0, 1.0), True
        margin = self._margin()
        if epsilon >= self.highest - margin:  # the error of the largest loss may add that much to δ
            more = 0.0 if epsilon > self.highest + margin else 4 * margin
            return Interval(self.infinity_mass(-1), min(1.0, self.infinity_mass(1) + more)), True
        point = np.array([epsilon])
        if self._plan_for_loss(epsilon, _FIRST_WIDTH).log_delta < -230:
            # δ is too small for a sum of weights, so there is only an upper bound.
            return Interval(0.0, tail_bound(self.laws, epsilon)), True

        def ask(upper: OneSidedCurve, lower: OneSidedCurve | None) -> tuple[float, float]:
            return (0.0 if lower is None else float(lower.delta(point)[0])), float(upper.delta(point)[0])

        result, met = self._refined(
            lambda lattice_width, _: self._plan_for_loss(epsilon, lattice_width),
            ask,
            width,
            self._lattice_widths(width),
        )
        low, high = max(0.0, result.lower), min(1.0, result.upper)
        # A lattice is poor at losses that are rare and far from all others.
        if self._target is None and (self.first[0] <= 0 or self.first[1] > 100 * self.first[0]):
            high = min(high, tail_bound(self.laws, epsilon))
            if not self.upper_only:  # each mechanism is a post-processing of the composition
                low = max(low, *(SingleLaw(law).delta(epsilon, 1.0)[0].lower for law, _ in self.laws))
        return Interval(min(low, high), high), met

    def blowup(self, p: float, width: float) -> tuple[Interval, bool]:
        """sup{P(E): Q(E) ≤ p} for p in (0, 1), and whether upper − lower ≤ width·upper."""
        if self.infinity_mass(-1) >= 1:
            return Interval(1.0, 1.0), True
        point = np.array([p])

        def ask(upper: OneSidedCurve, lower: OneSidedCurve | None) -> tuple[float, float]:
            return (p if lower is None else float(lower.blowup(point)[0])), float(upper.blowup(point)[0])

        result, met = self._refined(
            lambda lattice_width, _: self._plan_for_level(p, lattice_width), ask, width, self._lattice_widths(width)
        )
        return Interval(max(p, result.lower), min(1.0, result.upper)), met

    def profile(self, epsilons: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds on δ at each ε ≥ 0: the best of lattices for several of them and of earlier calls."""
        low, high = np.zeros(epsilons.size), np.ones(epsilons.size)
        if self.infinity_mass(-1) >= 1:
            return high, high

        def use(curves: tuple[OneSidedCurve, OneSidedCurve | None]) -> None:
            upper, lower = curves
            np.fmin(high, upper.delta(epsilons), out=high)  # fmin ignores NaN, which is no bound
            if lower is not None:
                np.fmax(low, lower.delta(epsilons), out=low)

        for _, curves in self._kept:
            use(curves)
        for index in _spread_out(epsilons):
            point = float(epsilons[index])
            if point >= self.highest or self._is_known(point, low[index], high[index]):
                continue
            if (result := self._curves_or_coarser(self._plan_for_loss(point, _FIRST_WIDTH))) is not None:
                use(result)
                self._keep(point, result)
        outside = epsilons > self.highest + self._margin()
        return np.where(outside, self.infinity_mass(-1), low), np.where(outside, self.infinity_mass(1), high)

    def _is_known(self, loss: float, low: float, high: float) -> bool:
        """Whether a kept lattice is as good at a loss as a new one would be."""
        if self.upper_only:
            return any(abs(loss - kept) <= 0.05 * loss for kept, _ in self._kept)
        return _relative(low, high) <= _FIRST_WIDTH

    def _keep(self, loss: float, curves: tuple[OneSidedCurve, OneSidedCurve | None]) -> None:
        self._kept.append((loss, curves))
        while len(self._kept) > 1 and sum(upper.losses.size for _, (upper, _) in self._kept) > MAX_POINTS:
            self._kept.pop(0)

    def blowups(self, ps: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds on the blow-up of each p in (0, 1): the best of lattices for several of them."""
        low, high = ps.copy(), np.ones(ps.size)
        if self.infinity_mass(-1) >= 1:
            return high, high
        for index in _spread_out(ps):
            point = min(max(float(ps[index]), 1e-280), 0.999)
            ends = float(low[index]), float(high[index])
            if max(_relative(*ends), _relative(1 - ends[1], 1 - ends[0])) <= _FIRST_WIDTH:  # also for the type II error
                continue
            if (result := self._curves_or_coarser(self._plan_for_level(point, 1e-3))) is None:
                continue
            upper, lower = result
            high = np.fmin(high, upper.blowup(ps))  # fmin ignores NaN, which is no bound
            low = low if lower is None else np.fmax(low, lower.blowup(ps))
        return np.minimum(low, high), high

    def _lattice_widths(self, width: float) -> Iterable[float]:
        """The relative widths of the lattices that are tried, in order."""
        return _lattice_widths(width) if self._target is None else (_ROUGH_WIDTH, _FIRST_WIDTH)

    def _margin(self) -> float:
        """The rounding error of `highest`."""
        if not math.isfinite(self.highest):
            return 0.0
        return sum(count * (64 * UNIT * (1 + abs(law.highest)) + 2 * law.end_error) for law, count in self.laws)

    def infinity_mass(self, side: int) -> float:
        """P(loss = ∞) of the product, rounded up (side 1) or down (side −1)."""
        if any(law.infinity_mass >= 1 for law, _ in self.laws):
            return 1.0
        chances = [SingleLaw(law).infinity_mass(side) if law.upper_only else law.infinity_mass for law, _ in self.laws]
        if max(chances, default=0.0) >= 1:
            return 1.0
        log_finite_mass = (count * math.log1p(-chance) for chance, (_, count) in zip(chances, self.laws, strict=True))
        exact = -math.expm1(math.fsum(log_finite_mass))
        error = 2 * max((law.infinity_mass_error for law, _ in self.laws), default=0.0)
        return min(1.0, max(0.0, exact * (1 + side * error)))

    def curves(self, plan: LatticePlan) -> tuple[OneSidedCurve, OneSidedCurve | None]:
        """Upper and lower curve of the product on the plan's lattice; the second is None if it is not known."""
        uppers, lowers = self._measures(plan)
        known = not self.upper_only and all(measure.masses.any() for measure, _ in lowers)
        sides = [uppers, lowers] if known else [uppers]
        result = products(sides, plan.tilt, plan.outside, plan.slopes, plan.focus)
        curves = [OneSidedCurve(product, is_upper=not index, focus=plan.focus) for index, product in enumerate(result)]
        return curves[0], (curves[1] if known else None)

    def _measures(self, plan: LatticePlan) -> tuple[list[tuple[Measure, int]], list[tuple[Measure, int]]]:
        """Upper and lower measures of all laws on the plan's lattice; those of the last two are cached: a lattice on
        which the product has too many points, and a coarser one, often take turns."""
        key = plan.step, plan.cut, plan.supports, None if self.upper_only else plan.log_delta
        if key in self._last_measures:
            return self._last_measures[key]
        aligned = aligned_step(self.laws, plan.step)
        step = rounded_step(aligned)
        upper_step = rounded_step(aligned, up=True) if all(law.discrete for law, _ in self.laws) else step
        uppers: list[tuple[Measure, int]] = []
        lowers: list[tuple[Measure, int]] = []
        laws, _, _ = self._prepared(plan.cut)
        for law, (_, count), support in zip(laws, self.laws, plan.supports, strict=True):
            delta = math.exp(max(plan.log_delta, -600.0))
            upper, lower = enclosing_measures(
                law, step, upper_step, plan.cut, *support, delta, upper_only=self.upper_only
            )
            uppers.append((upper, count))
            if lower is not None:
                lowers.append((lower, count))
        self._last_measures[key] = uppers, lowers
        if len(self._last_measures) > 2:
            del self._last_measures[next(iter(self._last_measures))]
        return uppers, lowers

    def _cut(self, delta: float, width: float) -> float:
        """Mass that each law may ignore in a question about δ, a power of ten."""
        return float(10.0 ** math.floor(math.log10(max(1e-2 * min(width, 1.0) * delta / self.count, 1e-290))))

    def _prepared(self, cut: float) -> tuple[list[Law], list[tuple[float, float]], Cumulants]:
        """The laws pruned by a mass of `cut`, the losses between which they matter, and their cumulants."""
        if cut not in self._cut_laws:
            laws = [law.pruned(cut) for law, _ in self.laws]
            # Mass merged on the left hardly moves the sum, so it may be more than the mass moved to infinity.
            left = min(1e-4, max(cut, 1e-6 / self.count))
            supports = [law.support(left, cut) for law in laws]
            counted = [(law, count) for law, (_, count) in zip(laws, self.laws, strict=True)]
            self._cut_laws[cut] = (laws, supports, Cumulants(counted, supports))
        return self._cut_laws[cut]

    def _plan_for_level(self, p: float, width: float) -> LatticePlan:
        cut = self._cut(min(p, 0.1) * 1e-2, width)
        saddle = self._prepared(cut)[2].at_level(min(p, 0.999))
        room = width / (saddle.tilt + 1 / (saddle.spread + 1e-12))
        plan = self._plan(cut, saddle, room, width, dense=width < _ROUGH_WIDTH)
        return dataclasses.replace(plan, focus=-math.inf)

    def _plan_for_loss(self, epsilon: float, width: float) -> LatticePlan:
        cut = self._cut(1e-12, width)
        saddle = self._prepared(cut)[2].at_epsilon(epsilon)
        if saddle.log_delta < math.log(1e-11):
            cut = self._cut(math.exp(max(saddle.log_delta, -600.0)), width)
            saddle = self._prepared(cut)[2].at_epsilon(epsilon)
        room = width / (saddle.tilt + 1 / (saddle.spread + 1e-12))
        chernoff_exponent = float(self._prepared(cut)[2].values_at(np.array([saddle.tilt]))[0]) - saddle.tilt * epsilon
        log_delta = min(saddle.log_delta, chernoff_exponent)
        saddle = dataclasses.replace(saddle, epsilon=epsilon, log_delta=log_delta)
        return self._plan(cut, saddle, room, width, dense=width < _ROUGH_WIDTH)

    def _plan(self, cut: float, saddle: Saddle, room: float, precision: float, *, dense: bool) -> LatticePlan:
        """A lattice for a question. Its upper and lower curves together err by n(λ + 1)h²/8, and somewhat more.

        Args:
            cut: mass that each law may ignore.
            saddle: the saddle point of the question.
            room: allowed error of ε.
            precision: allowed relative error of δ.
            dense: make a lattice of few points finer.
        """
        laws, supports, cumulants = self._prepared(cut)
        tilt, log_share = self._tilt(cumulants, saddle)
        step = 0.84 * math.sqrt(8 * room / (self.count * (1 + saddle.tilt)))
        widest = max(max(high - low, 1e-3 * max(abs(low), abs(high))) for low, high in supports)
        step = min(step, widest / 24)
        if self.count > 1 and saddle.spread > 1e-6 * widest:
            step = min(step, saddle.spread / 4)
        outside = max(1e-2 * precision * math.exp(max(log_share, -600.0)), 1e-280)
        slopes, ends = cumulants.slopes(tilt, outside)
        if dense and step > 0 and (not self.upper_only or self._target is not None):
            wide = [(high - low) * law.relative_cost for (low, high), law in zip(supports, laws, strict=True)]
            points = max(ends[1] - ends[0], sum(wide)) / step
            finer = min(1.0, max(points / _FEW_POINTS, 0.1))
            step, outside, precision = finer * step, max(finer**2 * outside, 1e-280), finer**2 * precision
        focus = saddle.epsilon - max(0.1 * abs(saddle.epsilon), 0.2 * saddle.spread) - 8 * step
        narrowed = self._narrowed(cut, tilt, 1e-3 * precision / self.count, step)
        return LatticePlan(step, tilt, cut, outside, slopes, narrowed, saddle.epsilon, focus, saddle.log_delta)

    def _tilt(self, cumulants: Cumulants, saddle: Saddle) -> tuple[float, float]:
        """λ, and the log of the tilted product's mass beyond the loss.

        A small λ keeps the window small, but that mass must exceed the rounding of a transform.
        """
        tilts = np.array([0.6, 0.75, 0.9, 1.0]) * saddle.tilt
        log_shares = np.minimum(saddle.log_delta - cumulants.values_at(tilts) + tilts * saddle.epsilon, 0.0)
        enough = np.flatnonzero(log_shares > math.log(1e-7))
        chosen = int(enough[0]) if enough.size else -1
        return float(tilts[chosen]), float(log_shares[chosen])

    def _narrowed(self, cut: float, tilt: float, share: float, step: float) -> tuple[tuple[float, float], ...]:
        """Supports without losses on the left whose tilted mass is below `share`, if that saves many steps."""
        laws, supports, _ = self._prepared(cut)
        results = []
        for law, (low, high) in zip(laws, supports, strict=True):
            if tilt > 0 and min(high, 0.0) - low > 64 * step and law.atom is None:
                points = low + (min(high, 0.0) - low) * np.arange(65) / 64
                weights = law.tails(points).p_below * np.exp(tilt * points)
                light = np.maximum.accumulate(weights) <= share
                low = float(points[max(0, int(np.count_nonzero(light)) - 1)])
            results.append((low, high))
        return tuple(results)

    def _refined(
        self,
        planned: Callable[[float, float | None], LatticePlan],
        ask: Callable[[OneSidedCurve, OneSidedCurve | None], tuple[float, float]],
        width: float,
        lattice_widths: Iterable[float],
        *,
        guessed: bool = False,
    ) -> tuple[Interval, bool]:
        """The best bounds on finer and finer lattices, until they are narrow enough.

        The lattices and their order do not depend on the width, which only decides when to stop. So a narrower request
        never has a wider answer.

        Args:
            planned: maps a relative width, and a guess of the loss if there is one, to a lattice.
            ask: the lower and upper answer of an upper and a lower curve.
            width: of the answer, relative to its upper end.
            lattice_widths: relative widths, one after the other, that lattices are made for.
            guessed: the answer is a loss, so a new plan can be made if the guess of it was far off.
        """
        result = _LatticeBounds()
        for lattice_width in lattice_widths:
            if self._target is not None:
                alone = _LatticeBounds()  # the lattices tried at a width must not depend on earlier widths
                self._search_at_width(
                    lattice_width, planned(lattice_width, None), planned if guessed else None, ask, alone
                )
                result.high = min(result.high, alone.high)
                if result.high <= self._target:
                    break
                continue
            before = result.width
            if result.last is not None and before <= lattice_width:
                continue  # the last lattice is fine enough
            plan = planned(lattice_width, result.loss)
            if result.last is not None:
                plan = dataclasses.replace(plan, step=result.step * self._shrink(result.last, lattice_width))
            self._search_at_width(lattice_width, plan, planned if guessed else None, ask, result)
            if lattice_width == _FIRST_WIDTH:
                self.first = result.low, result.high
            if result.width <= width:
                return result.interval, True
            if not result.width <= 0.95 * before:  # finer lattices do not fit, or rounding dominates
                break
        return result.interval, False

    def _search_at_width(
        self,
        lattice_width: float,
        plan: LatticePlan,
        planned: Callable[[float, float | None], LatticePlan] | None,
        ask: Callable[[OneSidedCurve, OneSidedCurve | None], tuple[float, float]],
        results: _LatticeBounds,
    ) -> None:
        """Adds the bounds of some lattices to `results`; `planned` is given if the answer is a guessed loss."""
        step, finest = plan.step, 0.0
        for _ in range(ATTEMPTS):
            try:
                answer = ask(*self.curves(dataclasses.replace(plan, step=step)))
            except TooManyPoints:
                finest = step
                if results.last is None or not math.isfinite(results.high):
                    step *= 4
                elif results.step > 1.5 * finest:
                    step = math.sqrt(results.step * finest)
                else:
                    break
                continue
            if planned and plan.focus > -math.inf and (answer[0] == -math.inf or answer[1] <= plan.focus + 2 * step):
                plan = dataclasses.replace(plan, focus=-math.inf)  # the guess was wrong: the answer is smaller
                continue
            before = results.high
            results.add(step, answer)
            if self._target is not None or results.width <= lattice_width:
                break
            middle = results.high if self.upper_only else (max(results.low, 0.0) + results.high) / 2
            far_off = 0 < middle < math.inf and abs(middle - plan.loss) > 0.1 * middle
            if planned and results.loss is None and far_off:
                results.loss = middle
                plan = planned(lattice_width, middle)
                step = max(min(plan.step, step * self._shrink(answer, lattice_width)), 1.5 * finest)
                continue
            # If there is only an upper bound, refine until it stops decreasing.
            if (answer[0] == -math.inf or self.upper_only) and before - results.high < lattice_width * abs(
                results.high
            ):
                break
            step *= 0.5 if self.upper_only else self._shrink(answer, lattice_width)
            if step <= finest:
                if results.step <= 1.5 * finest:
                    break
                step = math.sqrt(results.step * finest)

    def _shrink(self, result: tuple[float, float], lattice_width: float) -> float:
        """The factor by which the next lattice is finer: the width decreases with the step, or with its square."""
        low, high = result
        if not math.isfinite(high) or not math.isfinite(low):
            return 0.3
        factor = min(0.9, 0.9 * lattice_width / max(_relative(low, high), 1e-300))
        return float(max(0.95 * factor if self._discrete else 0.95 * math.sqrt(factor), 0.02))

    def _curves_or_coarser(self, plan: LatticePlan) -> tuple[OneSidedCurve, OneSidedCurve | None] | None:
        """The curves on the plan's lattice or on a coarser one; None if no lattice fits."""
        plan = dataclasses.replace(plan, focus=-math.inf)
        for _ in range(20):
            try:
                return self.curves(plan)
            except TooManyPoints:
                plan = dataclasses.replace(plan, step=4 * plan.step)
        return None


def _spread_out(values: Floats) -> list[int]:
    """The indices of the middle value, of the smallest and largest, and of the quartiles, in this order."""
    order = np.argsort(values, kind="stable")
    return list(dict.fromkeys(int(order[round(share * (values.size - 1))]) for share in (0.5, 0.0, 1.0, 0.25, 0.75)))


def _lattice_widths(width: float) -> Iterator[float]:
    """Widths from `_FIRST_WIDTH` down by factors of ten, the last at most `width`."""
    lattice_width = _FIRST_WIDTH
    yield lattice_width
    while lattice_width > width * (1 + 1e-9) and lattice_width > 1e-15:
        lattice_width /= 10
        yield lattice_width


def _relative(low: float, high: float) -> float:
    """The width of an interval relative to its upper end; negative ends count as 0."""
    low, high = max(low, 0.0), max(high, 0.0)
    return (high - low) / high if 0 < high < math.inf else (0.0 if not high else math.inf)


def aligned_step(laws: Composed, step: float) -> float:
    """The largest step of at most `step` that divides the distances of the atoms, if there is one.

    A law of atoms only, at equal distances, needs no finer lattice than those. Atoms closer than `step` do not make it
    finer.
    """
    if len(laws) == 1 and laws[0][0].discrete and laws[0][0].spacing:
        return laws[0][0].spacing / math.ceil(laws[0][0].spacing / 100)  # e^step must not overflow
    for law, _ in laws:
        if law.spacing > step:
            return law.spacing / math.ceil(law.spacing / step)
    return step
