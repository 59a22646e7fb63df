"""δ(ε), ε(δ) and the blow-up of a product of measures, bounded from one side."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from dpassay.accounting.lattice.convolution import LatticeProduct
from dpassay.accounting.lattice.laws import _EXP, UNIT
from dpassay.accounting.lattice.measure import MIN_MASS, hockey_stick_of_masses
from dpassay.base.arrays import Floats


class OneSidedCurve:
    """An upper or a lower bound on H(e^ε) of a product at its lattice points.

    Between two points the bound is linear in e^ε: a chord of upper bounds lies above a convex curve, and the curve of a
    measure is piecewise linear itself.
    """

    def __init__(self, product: LatticeProduct, *, is_upper: bool, focus: float = -math.inf) -> None:
        """Keeps only losses above `focus`, which is enough for the curve there."""
        first = min(max(0, math.floor((focus - product.start) / product.step)) if focus > -math.inf else 0, 1 << 62)
        first = min(first, product.weights.size - 2)
        if first:
            start = product.start + first * product.step
            product = dataclasses.replace(product, start=start, weights=product.weights[first:])
        self.is_upper = is_upper
        self.losses = product.losses()
        self.step = product.step
        self._blur = product.blur
        values = self._untilted(product)
        values, whole = values[:-1], float(values[-1])
        if is_upper:
            beyond = self._at(product, self.losses[-1]) * product.beyond if product.beyond else 0.0
            if product.missing:
                beyond += self._at(product, product.floor) * product.missing
            values = (values + product.infinity_mass + beyond * (1 + 64 * UNIT)) * (1 + product.excess) * (1 + 4 * UNIT)
            # Left of the product's floor the weights give no bound.
            self.values: Floats = np.where(self.losses < product.floor, 1.0, np.minimum(values, 1.0))
            self._alias = np.zeros(1)
        else:
            values = (values + product.infinity_mass) * (1 - min(product.excess, 1.0)) * (1 - 4 * UNIT)
            self.values = np.clip(values, 0.0, 1 - 2 * UNIT)
            self._whole = min(1.0, (whole + product.infinity_mass) * (1 - min(product.excess, 1.0)) * (1 - 4 * UNIT))
            # Mass that wrapped around counts at most e^{log_total − λε} per unit of tilted mass.
            with np.errstate(over="ignore", invalid="ignore"):
                alias = product.outside * np.exp(product.log_total - product.tilt * self.losses) * (1 + 1e-9)
            self._alias = alias if product.outside else np.zeros(self.losses.size)
            # δ decreases, so it is at least this further left.
            infinity_mass = min(1.0, product.infinity_mass * (1 - min(product.excess, 1.0)) * (1 - 4 * UNIT))
            known = np.maximum(self.values - self._alias, infinity_mass)
            self._known: Floats = np.maximum.accumulate(known[::-1])[::-1]

    def _at(self, product: LatticeProduct, loss: float) -> float:
        """The weight of a unit of tilted mass at a loss, rounded up."""
        exponent = product.log_total - product.tilt * (loss - product.blur)
        if exponent > 700:
            return math.inf
        return math.exp(exponent) * (1 + 8 * UNIT * (1 + abs(product.log_total) + abs(product.tilt * loss)))

    def _untilted(self, product: LatticeProduct) -> Floats:
        """Σ_{j>k} W_j (1 − e^{−(j−k)·step}) of the untilted masses W, with every error charged."""
        weights = np.maximum(product.weights + product.error if self.is_upper else product.weights - product.error, 0.0)
        middle = (self.losses[0] + self.losses[-1]) / 2
        exponents = -product.tilt * (self.losses - middle)
        largest = float(np.abs(exponents).max())
        if largest > 690:
            exponents = np.maximum(exponents, -690.0) if self.is_upper else np.minimum(exponents, 690.0)
        weights = weights * np.exp(exponents)
        weights = np.maximum(weights, MIN_MASS) if self.is_upper else np.where(weights < MIN_MASS, 0.0, weights)
        values, error = hockey_stick_of_masses(weights, 0.0, product.step)
        values = np.append(values, weights.sum())  # the last entry is the curve at t = 0
        scale = product.log_total - product.tilt * middle
        error += 2 * _EXP + 4 * UNIT * (4 + abs(product.log_total) + 2 * product.tilt * abs(middle) + largest)
        error += 2 * product.tilt * product.blur  # the losses themselves err by at most the blur
        sign = 1 if self.is_upper else -1
        if scale < -690:  # the factor underflows: e^−690 is an upper bound, 0 a lower one
            values = values * math.exp(-690.0) if self.is_upper else np.zeros(values.size)
            scale = 0.0
        if scale > 690:  # beyond float64, which happens only far from the loss of interest
            return np.where(values > 0, math.inf, 0.0) if self.is_upper else values
        values = values * math.exp(scale) * (1 + sign * error)
        return np.asarray(np.nan_to_num(values, nan=math.inf if self.is_upper else 0.0))

    def delta(self, epsilons: Floats) -> Floats:
        """The bound at each ε (float64, any shape)."""
        shifted = epsilons - self._blur if self.is_upper else epsilons + self._blur
        index = np.clip(np.searchsorted(self.losses, shifted, side="right") - 1, 0, self.losses.size - 2)
        part = np.clip(np.expm1(shifted - self.losses[index]) / math.expm1(self.step), 0.0, 1.0)
        value = self.values[index] * (1 - part) + self.values[index + 1] * part
        trivial = -np.expm1(np.minimum(epsilons, 0.0))
        if self.is_upper:
            value = value * (1 + 32 * UNIT)
            left = shifted < self.losses[0]
            chord = 1 - (1 - self.values[0]) * np.exp(np.minimum(shifted - self.losses[0], 0.0)) * (1 - 16 * UNIT)
            return np.minimum(np.where(left, chord + 2 * UNIT, value), 1.0)
        value = value * (1 - 32 * UNIT) - self._alias[index]
        # Left of the first point the curve is a line from its value at t = 0, and wrapped mass counts no more there.
        part = np.exp(np.minimum(shifted - self.losses[0], 0.0)) * (1 + 16 * UNIT)
        line = self._whole * (1 - 8 * UNIT) - (self._whole - self.values[0]) * part - self._alias[0]
        value = np.where(shifted < self.losses[0], line, np.where(shifted > self.losses[-1], 0.0, value))
        known = np.where(shifted > self.losses[-1], self._known[-1], self._known[index + (shifted >= self.losses[0])])
        return np.asarray(np.maximum(value, np.maximum(trivial * (1 - 8 * UNIT), known)))

    def epsilon(self, delta: float) -> float:
        """The least ε whose upper bound is at most δ, or the largest ε whose lower bound is at least δ."""
        if self.is_upper:
            if self.values[-1] > delta:
                return math.inf
            index = int(np.argmax(self.values <= delta))
            if index == 0:
                return float(self.losses[0]) + self._blur
            high, low = self.values[index - 1], self.values[index]
            part = (high - delta) / (high - low) * (1 + 8 * UNIT)
        else:
            values = self.values[:-1] - self._alias[:-1]
            result = np.flatnonzero(values >= delta)
            if not result.size:
                room = self._whole * (1 - 8 * UNIT) - delta - float(self._alias[0])
                if room <= 0 or self._whole <= self.values[0]:
                    return -math.inf
                loss = float(self.losses[0]) + min(math.log(room / (self._whole - self.values[0])), 0.0)
                return loss - self._blur - 32 * UNIT * (1 + abs(loss))
            index = int(result[-1]) + 1
            high, low = self.values[index - 1], self.values[index]
            wanted = delta + self._alias[index - 1]
            part = max(0.0, (high - wanted) / (high - low) * (1 - 8 * UNIT)) if high > low else 1.0
        inside = math.log1p(math.expm1(self.step) * min(max(part, 0.0), 1.0))
        sign = 1 if self.is_upper else -1
        base = float(self.losses[index - 1])
        return base + inside + sign * (self._blur + 8 * UNIT * (abs(base) + inside))

    def blowup(self, p: Floats) -> Floats:
        """min_ε [e^ε p + δ(ε)], bounded from this side, for each p (float64, one dimension)."""
        with np.errstate(over="ignore"):
            t = np.exp(self.losses + (self._blur if self.is_upper else -self._blur))
        if self.is_upper:
            with np.errstate(invalid="ignore"):
                slopes = np.nan_to_num((self.values[:-1] - self.values[1:]) / np.diff(t))
            index = np.searchsorted(-slopes, -p)
            nearby = np.clip(index[:, None] + np.arange(-1, 2), 0, t.size - 1)
            best = (t[nearby] * p[:, None] + self.values[nearby]).min(axis=1)
            return np.asarray(np.minimum(best * (1 + 16 * UNIT), 1.0))
        return self._least(t, p)

    def _least(self, t: Floats, p: Floats) -> Floats:
        """A lower bound on the least t·p + δ(t) over all t > 0, for each p.

        On each piece of the curve one of three lines is below it: the piece minus the mass that wrapped around, 1 − t,
        or a lower bound from further right. The tangent of slope −p to the convex minorant of all these lines gives the
        answer.
        """
        count = min(t.size, int(np.count_nonzero(t < 1e300)))
        if count < 2:
            return p.copy()
        t, values = t[:count], self.values[:count]
        alias = np.broadcast_to(self._alias, self.losses.shape)[:count]
        over = t * math.exp(2 * self._blur) * (1 + 16 * UNIT)  # an upper bound on the exact points
        known = values[:-1] - alias[:-1], values[1:] - alias[:-1]
        beyond = self._known[1:count]
        falling = 1 - over[1:] > beyond  # the right end of 1 − t decides
        trivial = np.where(falling, 1 - t[:-1], beyond), np.where(falling, 1 - over[1:], beyond)
        better = (np.minimum(*known) >= 0) & (known[0] + known[1] > trivial[0] + trivial[1])
        left, right = (np.where(better, first, second) for first, second in zip(known, trivial, strict=True))
        heights = np.minimum(np.append(left, right[-1]), np.append(left[0], right))
        convex, slopes = _convex_minorant(t, heights)
        touched = np.searchsorted(slopes, -p)
        least = t[touched] * p + convex[touched]
        # Left of the first point the curve is a line from its value at t = 0, and wrapped mass counts no more there.
        start = np.minimum(self._whole, t[0] * p + values[0]) - alias[0]
        first = float(self._known[0])
        start = np.maximum(start, 1 - over[0] + over[0] * p if 1 - over[0] > first else first)
        # Right of the last point the bound is constant, if that is the last point of the whole curve.
        infinity_mass = float(self._known[-1]) if count == self.values.size else 0.0
        end = t[-1] * p + infinity_mass
        least = np.minimum(np.minimum(least, start), end) * (1 - 16 * UNIT)
        return np.asarray(np.clip(least, p, 1.0))


def _convex_minorant(t: Floats, heights: Floats) -> tuple[Floats, Floats]:
    """Values at t of a convex function below `heights` ≥ 0 at increasing t, and its slopes between them, at most 0.

    The slopes are those of the greatest convex minorant, up to rounding, which is measured on the values and
    subtracted.
    """
    from scipy.optimize import isotonic_regression

    heights = np.minimum.accumulate(heights)
    widths = np.maximum(np.diff(t), 1e-290)
    slopes = np.minimum(isotonic_regression(np.diff(heights) / widths, weights=widths).x, 0.0)
    falls = np.cumsum((-slopes * widths)[::-1])[::-1]
    values, error = np.append(falls, 0.0) + heights[-1], (2 * t.size + 8) * UNIT  # sums of positive terms
    high = values * (1 + error)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = min(1.0, float(np.where(heights > 1e-290, heights / high, 1.0).min()))
    missing = max(0.0, float((scale * high - heights).max()))
    return np.maximum(scale * (1 - error) * values - missing, 0.0), scale * slopes
