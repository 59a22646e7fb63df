"""Where a level that increases along a parameter crosses its limits, in few measurements, each an interval.

A measurement at a value of the parameter gives the level from below and from above. A limit is met if the upper end is
within it. Everything else only decides where to measure next.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from dpassay.accounting.lattice.pairs import FINEST
from dpassay.base.errors import DpassayError

A = TypeVar("A")

CAP = 700.0
"""Levels are logarithms; infinity has the level CAP, and zero −CAP."""
COARSE = 1e-3
_STRIDE = math.log(16)
_PATIENCE = 16
_SHARE = 0.37
"""Roughly where the exact level lies in an enclosure, from its lower end; used only to decide where to measure next."""


@dataclass(frozen=True, slots=True, eq=False)
class Measurement(Generic[A]):
    """One measurement."""

    value: float  # of the parameter
    coordinate: float  # log of the value, or minus that, such that levels increase with the coordinate
    width: float  # the requested width of the level
    low: float  # low and high: the level from below and from above, in [−CAP, CAP]
    high: float
    answer: A  # what was measured

    @property
    def middle(self) -> float:
        """The best guess of the level; ±CAP if nothing is known."""
        if abs(self.low) < CAP and abs(self.high) < CAP:
            return self.low + _SHARE * (self.high - self.low)
        return self.low if abs(self.low) < CAP else self.high

    @property
    def final(self) -> bool:
        """Whether a finer measurement would not help: none is finer, or this one is wider than requested."""
        return self.width <= FINEST or self.high - self.low > 2 * self.width


class Crossing(NamedTuple, Generic[A]):
    """The last sample that meets a limit, the next that does not (None at the end of the range), and the count."""

    last: Measurement[A]
    beyond: Measurement[A] | None
    measurements: int


class Unreachable(DpassayError):
    """The limit is not met at the end of the range where the level is least."""

    def __init__(self, sample: Measurement[Any]) -> None:
        super().__init__("no value meets the limit")
        self.sample = sample


class NotMonotone(DpassayError):
    """The level decreases from one sample to the other, where it should increase."""

    def __init__(self, first: Measurement[Any], second: Measurement[Any]) -> None:
        super().__init__("the level decreases")
        self.samples = (first, second)


class LossCurve(Generic[A]):
    """The measurements of a level as a function of a parameter, for any number of limits.

    Args:
        measure: value, width ↦ (low, high, answer).
        bracket: the range of the parameter, 0 < low < high.
        rising: whether the level increases with the parameter.
        integer: whether only whole numbers are values.
        tolerance: relative distance between the last value that meets a limit and the next.
        slope: first guess of the slope of the level over the logarithm of the parameter.
    """

    def __init__(
        self,
        measure: Callable[[float, float], tuple[float, float, A]],
        bracket: tuple[float, float],
        *,
        rising: bool,
        integer: bool,
        tolerance: float,
        slope: float = 1.0,
    ) -> None:
        self._measure, self._integer, self._tolerance, self._slope = measure, integer, tolerance, slope
        self._sign = 1.0 if rising else -1.0
        self.ends = bracket if rising else bracket[::-1]
        self._samples: dict[float, Measurement[A]] = {}

    def crossing(self, limit: float, meets: Callable[[A], bool], start: float) -> Crossing[A]:
        """The last value at which a limit is met, as `meets` decides for an answer; `start` is tried first."""
        spent, gaps = 0, [math.inf] * 4
        while True:
            search = _LevelSearch(self, limit, meets, spent)
            if (result := search.finished()) is not None:
                return result
            gaps.append(search.gap)
            stuck = gaps[-1] > gaps[-5] / 2 and gaps[-1] > 8 * search.reach
            self._add(*search.proposal(start, halve=stuck))
            if stuck:
                gaps = [math.inf] * 4
            spent += 1

    def coordinate(self, value: float) -> float:
        """log of the value, with the sign that makes levels increase."""
        return self._sign * math.log(value)

    def value(self, coordinate: float) -> float:
        """The value at a coordinate, inside the bracket."""
        first, last = self.ends
        for end, beyond in ((first, self.coordinate(first) - coordinate), (last, coordinate - self.coordinate(last))):
            if beyond > -1e-13:
                return end
        return math.exp(self._sign * coordinate)

    def _add(self, value: float, width: float) -> None:
        known = self._samples.get(value)
        if known is not None:
            width = max(min(width, known.width / 4), FINEST)
        low, high, answer = self._measure(value, width)
        self._samples[value] = Measurement(value, self.coordinate(value), width, low, high, answer)
        ordered = self.ordered()
        for first, second in itertools.pairwise(ordered):
            if first.low > second.high + 0.05:
                raise NotMonotone(first, second)

    def ordered(self) -> list[Measurement[A]]:
        """The samples by increasing coordinate."""
        return sorted(self._samples.values(), key=lambda sample: sample.coordinate)


class _LevelSearch(Generic[A]):
    """The samples of a curve relative to one limit."""

    def __init__(self, curve: LossCurve[A], limit: float, meets: Callable[[A], bool], spent: int) -> None:
        self.curve, self.limit, self.spent = curve, limit, spent
        samples = curve.ordered()
        met = [sample for sample in samples if meets(sample.answer)]
        self.last = met[-1] if met else None
        after = [sample for sample in samples if self.last is None or sample.coordinate > self.last.coordinate]
        self.unmet = after[0] if after else None
        # If only measurement error separates a sample from the limit, a finer measurement may meet it.
        self.beyond = next((sample for sample in after if sample.low > limit or sample.final), None)
        self.low, self.high = (curve.coordinate(end) for end in curve.ends)
        left = self.low if self.last is None else self.last.coordinate
        right = self.high if self.beyond is None else self.beyond.coordinate
        self.left, self.right, self.gap = left, right, right - left
        self.guess, self.slope, self.distance = _model(samples, limit, curve._slope)
        near = curve.value(self.guess if self.guess is not None else left)
        self.reach = 1 / near if curve._integer else math.log1p(curve._tolerance)
        self.fine = min(max(self.slope * self.reach / 3, FINEST), COARSE)

    def finished(self) -> Crossing[A] | None:
        """The crossing, if it is found; None otherwise."""
        if self.last is None:
            end = self.curve._samples.get(self.curve.ends[0])
            if end is not None and (end.low > self.limit or end.final or end.width <= 1e-4):
                raise Unreachable(end)
            return None
        if self.last.value == self.curve.ends[1]:
            return Crossing(self.last, None, self.spent)
        for sample in (self.beyond, self.unmet if self.spent >= _PATIENCE else None):
            if sample is not None and self._adjacent(self.last, sample):
                return Crossing(self.last, sample, self.spent)
        return None

    def _adjacent(self, last: Measurement[A], other: Measurement[A]) -> bool:
        if self.curve._integer:
            return abs(other.value - last.value) == 1
        return other.coordinate - last.coordinate <= self.reach

    def proposal(self, start: float, *, halve: bool) -> tuple[float, float]:
        """What to measure next: a value and a width."""
        if self.last is None and self.unmet is None:
            return self._allowed(self.curve.coordinate(start)), COARSE
        if self.spent >= _PATIENCE // 2 and (self.last is None or self.unmet is None):
            return self.curve.ends[0 if self.last is None else 1], min(self.fine, 1e-4)
        if self.spent >= _PATIENCE and self.unmet is not None:
            return self._allowed((self.left + self.unmet.coordinate) / 2), self.fine
        if self.guess is None:
            if self.last is not None and self.beyond is not None:
                return self._allowed((self.left + self.right) / 2), COARSE
            step = -_STRIDE if self.last is None else _STRIDE
            return self._allowed(min(max(self.left if step > 0 else self.right, self.low), self.high) + step), COARSE
        width = min(max(0.02 * self.distance, self.fine), COARSE)
        if halve:
            return self._allowed((self.left + self.right) / 2), width
        return self._allowed(self._aim()), width

    def _aim(self) -> float:
        """A coordinate slightly to the side of the guess on which the nearest known sample is further away."""
        assert self.guess is not None
        ahead = self.last is not None and (self.beyond is None or self.right - self.guess > self.guess - self.left)
        if self.curve._integer:
            exact = self.curve._sign * self.guess
            integer = math.floor(math.exp(min(exact, CAP)) * (1 + 1e-12))
            rising = self.curve._sign > 0
            return self.curve.coordinate(max(integer + (ahead if rising else not ahead), 1))
        coordinate = self.guess + (0.35 if ahead else -0.35) * self.reach
        samples = self.curve.ordered()
        nearest = min(samples, key=lambda sample: abs(sample.coordinate - coordinate)).coordinate
        if self.last is None or self.beyond is None:
            coordinate = min(max(coordinate, nearest - _STRIDE), nearest + _STRIDE)
        outside = (self.last is not None and coordinate <= self.left) or (
            self.beyond is not None and coordinate >= self.right
        )
        return (self.left + self.right) / 2 if outside else coordinate

    def _allowed(self, coordinate: float) -> float:
        """The value at a coordinate; an integer lies between those known to meet and not to meet the limit."""
        value = self.curve.value(min(max(coordinate, self.low), self.high))
        if not self.curve._integer:
            return value
        value = round(value)
        inner = [self.last.value if self.last else None, self.beyond.value if self.beyond else None]
        rising = self.curve._sign > 0
        least, most = inner if rising else inner[::-1]
        if least is not None:
            value = max(value, int(least) + 1)
        if most is not None:
            value = min(value, int(most) - 1)
        return value


def _model(samples: Sequence[Measurement[A]], limit: float, slope: float) -> tuple[float | None, float, float]:
    """A guess of the coordinate that reaches the limit, the slope there, and the distance of the nearest sample.

    By inverse interpolation through the nearest samples that are further apart than their errors.
    """
    known = sorted(
        (sample for sample in samples if abs(sample.middle) < CAP),
        key=lambda sample: abs(sample.middle - limit) + sample.width / 2,
    )
    if not known:
        return None, slope, math.inf
    chosen = [known[0]]
    for sample in known[1:]:
        if len(chosen) < 3 and all(_apart(sample, other) for other in chosen):
            chosen.append(sample)
    first = chosen[0]
    distance = abs(first.middle - limit) + first.width / 2
    if len(chosen) == 1:
        return first.coordinate + (limit - first.middle) / slope, slope, distance
    second = chosen[1]
    flat = (second.coordinate - first.coordinate) / (second.middle - first.middle)
    coordinate, inverse = first.coordinate + flat * (limit - first.middle), flat
    if len(chosen) == 3:
        third = chosen[2]
        bend = ((third.coordinate - second.coordinate) / (third.middle - second.middle) - flat) / (
            third.middle - first.middle
        )
        steeper = flat + bend * (2 * limit - first.middle - second.middle)
        if flat / 4 < steeper < 4 * flat:
            coordinate += bend * (limit - first.middle) * (limit - second.middle)
            inverse = steeper
    return coordinate, min(max(1 / inverse, 1e-3), 1e3), distance


def _apart(first: Measurement[A], second: Measurement[A]) -> bool:
    level, coordinate = second.middle - first.middle, second.coordinate - first.coordinate
    return abs(level) > 2 * max(first.width, second.width) and level * coordinate > 0
