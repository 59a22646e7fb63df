"""Products without a lattice: of finite laws, by enumerating outcomes, and of one law with a finite one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from dpassay.accounting.lattice.laws import _EXP, UNIT, Atoms, Law, Swapped, Tails
from dpassay.base.arrays import Floats

MAX_OUTCOMES = 1 << 16
_MAX_BESIDE = 16
_MIN_MASS = 1e-290  # a smaller mass may have lost digits


def merged(laws: Sequence[tuple[Law, int]]) -> list[tuple[Law, int]]:
    """The same product with its finite laws merged into one, or into a single law with the only other one.

    The laws are returned unchanged if their product has too many outcomes, or too rare ones.
    """
    finite, rest = [], []
    for law, count in laws:
        sides = _outcomes(law)
        if sides is None:
            rest.append((law, count))
        else:
            finite.append((*sides, count))
    if not finite or (len(finite) == 1 and finite[0][-1] == 1 and not rest):
        return list(laws)
    alone = len(rest) == 1 and rest[0][1] == 1
    if rest and not alone:
        return list(laws)
    product = _product(finite, _MAX_BESIDE if rest else MAX_OUTCOMES)
    if product is None:
        return list(laws)
    return [(ProductWithAtoms(rest[0][0], product), 1)] if rest else [(product, 1)]


def _outcomes(law: Law) -> tuple[Floats, Floats, float, float] | None:
    """P and Q of every outcome of a finite law, their relative error, and the mass that may be missing; else None."""
    if isinstance(law, Swapped):
        sides = _outcomes(law.law)
        return None if sides is None else (sides[1], sides[0], *sides[2:])
    return law.outcomes if isinstance(law, Atoms) else None


def _product(finite: Sequence[tuple[Floats, Floats, float, float, int]], most: int) -> Atoms | None:
    """The product of finite laws; None if it has more than `most` outcomes or some are too rare.

    Outcomes of infinite loss are not enumerated; they stay infinite whatever the other laws give.
    """
    size = 1
    for p, q, _, _, count in finite:
        inner = int(((p > 0) & (q > 0)).sum())
        if inner == 0 or count >= 1000:
            return None
        size *= math.comb(count + inner - 1, min(count, inner - 1))  # exact: a float64 may not hold it
        if size > most:
            return None
    p, q, error, slack = np.ones(1), np.ones(1), 0.0, 0.0
    log_finite_mass = [0.0, 0.0]  # log of the probability that all losses are finite, under P and under Q
    for one_p, one_q, its_error, its_slack, count in finite:
        both = (one_p > 0) & (one_q > 0)
        if min(one_p[both].min(), one_q[both].min()) ** count < _MIN_MASS:
            return None
        kinds = _kinds(int(both.sum()), count)
        first, second = _masses(one_p[both], kinds), _masses(one_q[both], kinds)
        if min(first.min(), second.min()) < _MIN_MASS:
            return None
        p, q = np.outer(p, first).ravel(), np.outer(q, second).ravel()
        for side, mass in enumerate((one_p[one_q == 0].sum(), one_q[one_p == 0].sum())):
            if mass >= 1:  # up to rounding every loss is infinite
                return None
            log_finite_mass[side] += count * math.log1p(-float(mass))
        error += count * its_error + (8 * kinds.shape[1] + 2 * count) * UNIT + 2 * _EXP * one_p.size
        slack += count * its_slack
    if min(p.min(), q.min()) < _MIN_MASS:
        return None
    p, q = np.append(p, [-math.expm1(log_finite_mass[0]), 0.0]), np.append(q, [0.0, -math.expm1(log_finite_mass[1])])
    some = (p > 0) | (q > 0)
    return Atoms(p[some], q[some], error=error * (1 + 1e-9), slack=slack * (1 + 1e-9))


def _kinds(size: int, count: int) -> Floats:
    """The number of times that each of `size` outcomes occurs in `count` runs, one row per possibility."""
    indices, rows = range(count + size - 1), math.comb(count + size - 1, size - 1)
    bars = np.array(list(itertools.combinations(indices, size - 1)), dtype=np.float64).reshape(rows, size - 1)
    edges = np.hstack([np.full((rows, 1), -1.0), bars, np.full((rows, 1), count + size - 1.0)])
    return np.asarray(np.diff(edges, axis=1) - 1)


def _masses(side: Floats, kinds: Floats) -> Floats:
    """The multinomial probability of every row of `kinds`, from exact binomial coefficients."""
    count = int(kinds[0].sum())
    left, masses = np.full(kinds.shape[0], count), np.ones(kinds.shape[0])
    for index, mass in enumerate(side):
        times = kinds[:, index].astype(np.int64)
        for total in np.unique(left):
            chosen = left == total
            row = np.array([float(math.comb(int(total), k)) for k in range(total + 1)])
            masses[chosen] *= (row * mass ** np.arange(total + 1.0))[times[chosen]]
        left = left - times
    return masses


class ProductWithAtoms(Law):
    """The product of a law with a finite one: each outcome of the finite law shifts the loss by its own."""

    def __init__(self, law: Law, atoms: Atoms) -> None:
        self.law, self.atoms = law, atoms
        p, q, error, slack = atoms.outcomes
        both = (p > 0) & (q > 0)
        self._p, self._q = p[both], q[both]
        self._losses = np.log(self._p) - np.log(self._q)
        # A loss is a difference of two logarithms of masses that have errors themselves.
        self._shift = 2 * error + 2 * _EXP * float(np.abs(np.log([*self._p, *self._q, 0.5])).max())
        self._error, self._slack = error + 2 * (p.size + 4) * UNIT, slack
        self._atoms_infinity_mass, self._atoms_minus_infinity_mass = atoms.infinity_mass, atoms.minus_infinity_mass
        self.infinity_mass = law.infinity_mass + atoms.infinity_mass - law.infinity_mass * atoms.infinity_mass
        self.minus_infinity_mass = (
            law.minus_infinity_mass + atoms.minus_infinity_mass - law.minus_infinity_mass * atoms.minus_infinity_mass
        )
        self.infinity_mass_error = law.infinity_mass_error + atoms.infinity_mass_error
        self.end_error = law.end_error + atoms.end_error
        self.lowest, self.highest = law.lowest + atoms.lowest, law.highest + atoms.highest
        self.upper_only = law.upper_only
        self.discrete = law.discrete
        self.relative_cost = law.relative_cost * self._p.size

    def hockey_stick_upper(self, thresholds: Floats) -> Floats:
        if not self.upper_only:
            return super().hockey_stick_upper(thresholds)
        room = self._shift + 4 * UNIT * (np.abs(thresholds) + float(np.abs(self._losses).max(initial=0.0)))
        parts = [
            p * self.law.hockey_stick_upper(thresholds - loss - room)
            for p, loss in zip(self._p, self._losses, strict=True)
        ]
        total = np.sum(parts, axis=0) if parts else np.zeros(thresholds.shape)
        return np.asarray(np.minimum((total + self._atoms_infinity_mass) * (1 + self._error) + self._slack, 1.0))

    def tails(self, thresholds: Floats) -> Tails:
        p_above, q_below = (
            np.full(thresholds.shape, self._atoms_infinity_mass),
            np.full(thresholds.shape, self._atoms_minus_infinity_mass),
        )
        p_below, q_above, error, shift = (np.zeros(thresholds.shape) for _ in range(4))
        p_slack = q_slack = 0.0
        for p, q, loss in zip(self._p, self._q, self._losses, strict=True):
            part = self.law.tails(thresholds - loss)
            p_above += p * part.p_above
            p_below += p * part.p_below
            q_above += q * part.q_above
            q_below += q * part.q_below
            error = np.maximum(error, part.error)
            shift = np.maximum(shift, part.shift + 4 * UNIT * (np.abs(thresholds) + abs(loss)))
            p_slack, q_slack = p_slack + p * part.p_slack, q_slack + q * part.q_slack
        return Tails(
            p_above,
            p_below,
            q_above,
            q_below,
            error + self._error,
            shift + self._shift,
            (p_slack + self._slack) * (1 + 1e-9),
            (q_slack + self._slack) * (1 + 1e-9),
        )
