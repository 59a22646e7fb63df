"""What a product of measures says about δ(ε), ε(δ) and the blow-up, from one side."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from cupel.accounting.lattice_convolution import Product
from cupel.accounting.lattice_measure import LEAST, curve_of
from cupel.accounting.laws import _EXP, UNIT, Floats


class Curve:
    """A bound on H(e^ε) of a product at its lattice points, from above or from below.

    Between two points the bound is linear in e^ε: a chord of upper bounds lies above a convex curve, and the curve of a
    measure is its own chord.
    """

    def __init__(self, product: Product, *, above: bool, focus: float = -math.inf) -> None:
        """Keeps what lies above the loss `focus` only, which is all that the curve there needs."""
        first = min(max(0, math.floor((focus - product.start) / product.step)) if focus > -math.inf else 0, 1 << 62)
        first = min(first, product.weights.size - 2)
        if first:
            start = product.start + first * product.step
            product = dataclasses.replace(product, start=start, weights=product.weights[first:])
        self.above = above
        self.losses = product.losses()
        self.step = product.step
        self._blur = product.blur
        values = self._untilted(product)
        values, whole = values[:-1], float(values[-1])
        if above:
            beyond = self._at(product, self.losses[-1]) * product.beyond if product.beyond else 0.0
            values = (values + product.certain) * (1 + product.excess) * (1 + 4 * UNIT) + beyond * (1 + 64 * UNIT)
            self.values: Floats = np.minimum(values, 1.0)
            self._alias = np.zeros(1)
        else:
            values = (values + product.certain) * (1 - min(product.excess, 1.0)) * (1 - 4 * UNIT)
            self.values = np.clip(values, 0.0, 1.0)
            self._whole = min(1.0, (whole + product.certain) * (1 - min(product.excess, 1.0)) * (1 - 4 * UNIT))
            # What wrapped around counts at most e^{log_total − λε} a unit of tilted mass.
            with np.errstate(over="ignore", invalid="ignore"):
                alias = product.outside * np.exp(product.log_total - product.tilt * self.losses) * (1 + 1e-9)
            self._alias = alias if product.outside else np.zeros(self.losses.size)

    def _at(self, product: Product, loss: float) -> float:
        """What a unit of tilted mass weighs at a loss, rounded up."""
        exponent = product.log_total - product.tilt * loss
        if exponent > 700:
            return math.inf
        return math.exp(exponent) * (1 + 8 * UNIT * (1 + abs(product.log_total) + abs(product.tilt * loss)))

    def _untilted(self, product: Product) -> Floats:
        """Σ_{j>k} W_j (1 − e^{−(j−k)·step}) of the untilted masses W, every error charged."""
        weights = np.maximum(product.weights + product.error if self.above else product.weights - product.error, 0.0)
        middle = (self.losses[0] + self.losses[-1]) / 2
        exponents = -product.tilt * (self.losses - middle)
        largest = float(np.abs(exponents).max())
        if largest > 690:
            exponents = np.maximum(exponents, -690.0) if self.above else np.minimum(exponents, 690.0)
        weights = weights * np.exp(exponents)
        weights = np.maximum(weights, LEAST) if self.above else np.where(weights < LEAST, 0.0, weights)
        values, error = curve_of(weights, 0.0, product.step)
        values = np.append(values, weights.sum())  # last, the curve at t = 0
        scale = product.log_total - product.tilt * middle
        error += 2 * _EXP + 4 * UNIT * (4 + abs(product.log_total) + 2 * product.tilt * abs(middle) + largest)
        error += 2 * product.tilt * product.blur  # the losses themselves are off by no more than the blur
        sign = 1 if self.above else -1
        if scale > 690:  # beyond float64, which only a window far from the question can be
            return np.where(values > 0, math.inf, 0.0) if self.above else values
        values = values * math.exp(scale) * (1 + sign * error)
        return np.asarray(np.nan_to_num(values, nan=math.inf if self.above else 0.0))

    def delta(self, epsilons: Floats) -> Floats:
        """The bound at each ε (float64, any shape)."""
        shifted = epsilons - self._blur if self.above else epsilons + self._blur
        place = np.clip(np.searchsorted(self.losses, shifted, side="right") - 1, 0, self.losses.size - 2)
        part = np.clip(np.expm1(shifted - self.losses[place]) / math.expm1(self.step), 0.0, 1.0)
        value = self.values[place] * (1 - part) + self.values[place + 1] * part
        trivial = -np.expm1(np.minimum(epsilons, 0.0))
        if self.above:
            value = value * (1 + 32 * UNIT)
            left = shifted < self.losses[0]
            chord = 1 - (1 - self.values[0]) * np.exp(np.minimum(shifted - self.losses[0], 0.0)) * (1 - 16 * UNIT)
            return np.minimum(np.where(left, chord + 2 * UNIT, value), 1.0)
        value = value * (1 - 32 * UNIT) - self._alias[place]
        # Left of the first point it is a line from its value at t = 0, and what wrapped around counts no more.
        part = np.exp(np.minimum(shifted - self.losses[0], 0.0)) * (1 + 16 * UNIT)
        line = self._whole * (1 - 8 * UNIT) - (self._whole - self.values[0]) * part - self._alias[0]
        value = np.where(shifted < self.losses[0], line, np.where(shifted > self.losses[-1], 0.0, value))
        return np.maximum(value, trivial * (1 - 8 * UNIT))

    def epsilon(self, delta: float) -> float:
        """The least ε whose upper bound is at most δ, or the largest ε whose lower bound is at least δ."""
        if self.above:
            if self.values[-1] > delta:
                return math.inf
            place = int(np.argmax(self.values <= delta))
            if place == 0:
                return float(self.losses[0]) + self._blur
            high, low = self.values[place - 1], self.values[place]
            part = (high - delta) / (high - low) * (1 + 8 * UNIT)
        else:
            values = self.values[:-1] - self._alias[:-1]
            found = np.flatnonzero(values >= delta)
            if not found.size:
                room = self._whole * (1 - 8 * UNIT) - delta - float(self._alias[0])
                if room <= 0 or self._whole <= self.values[0]:
                    return -math.inf
                loss = float(self.losses[0]) + min(math.log(room / (self._whole - self.values[0])), 0.0)
                return loss - self._blur - 32 * UNIT * (1 + abs(loss))
            place = int(found[-1]) + 1
            high, low = self.values[place - 1], self.values[place]
            wanted = delta + self._alias[place - 1]
            part = max(0.0, (high - wanted) / (high - low) * (1 - 8 * UNIT)) if high > low else 1.0
        inside = math.log1p(math.expm1(self.step) * min(max(part, 0.0), 1.0))
        sign = 1 if self.above else -1
        base = float(self.losses[place - 1])
        return base + inside + sign * (self._blur + 8 * UNIT * (abs(base) + inside))

    def blowup(self, p: Floats) -> Floats:
        """min_ε [e^ε p + δ(ε)], from this side, for each p (float64, one dimension)."""
        with np.errstate(over="ignore"):
            t = np.exp(self.losses + (self._blur if self.above else -self._blur))
        if self.above:
            with np.errstate(invalid="ignore"):
                slopes = np.nan_to_num((self.values[:-1] - self.values[1:]) / np.diff(t))
            place = np.searchsorted(-slopes, -p)
            nearby = np.clip(place[:, None] + np.arange(-1, 2), 0, t.size - 1)
            best = (t[nearby] * p[:, None] + self.values[nearby]).min(axis=1)
            return np.asarray(np.minimum(best * (1 + 16 * UNIT), 1.0))
        return np.array([self._least(t, float(each)) for each in p])

    def _least(self, t: Floats, p: float) -> float:
        """The least of t·p + δ(t) over all t: on every piece the better of what is known and of (1 − t)⁺."""
        heights = t * p + self.values
        known = np.minimum(heights[:-1], heights[1:]) - self._alias[:-1]
        over = t * math.exp(2 * self._blur)  # where points lie is known to this much
        trivial = np.where(over[1:] <= 1, 1 - over[1:] * (1 - p), np.where(t[:-1] >= 1, t[:-1] * p, p))
        # Left of the first point the curve is a line from its value at t = 0, and what wrapped around counts no more.
        left = min(self._whole, float(heights[0])) - float(self._alias[0])
        # Right of the last point it is what it is there.
        right = max(float(heights[-1]) - float(self._alias[-1]), t[-1] * p, p)
        ends = (max(left, 1 - over[0] * (1 - p) if over[0] <= 1 else p), right)
        least = min(float(np.maximum(known, trivial).min()), *ends) * (1 - 16 * UNIT)
        return float(min(max(least, p), 1.0))
