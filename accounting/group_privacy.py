"""A guarantee for a larger unit or at another adjacency, by steps between neighbours; rounded outward."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.conversions import formulas
from dpassay.accounting.guarantees import (
    GDP,
    RDP,
    ZCDP,
    ApproxDP,
    ExPostDP,
    Guarantee,
    PrivacyProfile,
    PureDP,
    SecretProtection,
)
from dpassay.base import validate
from dpassay.base.arrays import Floats

_UNIT = 2.0**-53
_LEAST = 2.0**-1070
"""Covers the rounding of numbers below 2⁻¹⁰²², which is not relative to them; larger ones do not change."""
_REFUSED = {
    (
        Adjacency.REPLACE_ONE,
        Adjacency.ADD_REMOVE,
    ): "exchanging records keeps their number, which a mechanism may release",
    (Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT): "the null record need not be among those that replace_one exchanges",
    (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE): "a null record is still counted, and a mechanism may release the count",
    (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT): "the null record need not be among those that add_remove adds",
}


def for_group(guarantee: Guarantee, size: int) -> Guarantee:
    """The guarantee for a group of `size` units that change together: `size` steps between neighbours.

    Pure DP: kε. zCDP: k²ρ. GDP: kμ. (ε, δ)-DP and each point of a profile: kε and δ(e^{kε} − 1)/(e^ε − 1), which is δ
    Σ_{i<k} e^{iε}, since P(E) ≤ e^ε R(E) + δ bounds the middle of every two steps. RDP: c = ⌈log₂ k⌉ times half the
    order, the divergence times (2β − 3/2)/(β − 1) with β the new order.

    Args:
        guarantee: for one unit.
        size: k ≥ 1.

    Raises:
        ValueError: if nothing follows: for an ex-post ε, a secret's r, an order too small, or a δ that grows to 1.

    Source: Dwork, McSherry, Nissim and Smith (2006), pure DP; Vadhan, "The Complexity of Differential Privacy" (2017),
        Lemma 2.2; Bun and Steinke (2016), Proposition 1.9; Dong, Roth and Su (2022), Theorem 2.14; Mironov (2017),
        Corollary 4 (his Proposition 2, 3ε at each halving for orders from 4, follows from it).
    """
    validate.integer(minimum=1, size=size)
    if size == 1 and not isinstance(guarantee, ExPostDP | SecretProtection):
        return guarantee
    match guarantee:
        case PureDP(epsilon):
            return PureDP(formulas.up(size * Fraction(epsilon)))
        case ZCDP(rho):
            return ZCDP(formulas.up(size**2 * Fraction(rho)))
        case GDP(mu):
            return GDP(formulas.up(size * Fraction(mu)))
        case RDP(alpha, divergence):
            return _renyi(alpha, divergence, size)
        case ApproxDP(epsilon, delta):
            grown = delta_of_group(epsilon, delta, size)
            if grown >= 1:
                raise ValueError(f"({epsilon!r}, {delta!r})-DP gives no bound for a group of {size}: δ grows to 1")
            return ApproxDP(formulas.up(size * Fraction(epsilon)), grown)
        case PrivacyProfile(epsilons, deltas):
            indices = tuple(formulas.up(size * Fraction(epsilon)) for epsilon in epsilons)
            values = deltas_of_group(np.array(epsilons, dtype=np.float64), np.array(deltas, dtype=np.float64), size)
            return PrivacyProfile(indices, tuple(np.minimum.accumulate(values).tolist()))
        case ExPostDP():
            raise ValueError("an ex-post ε does not convert to groups: the data sets in between have other ex-post ε")
        case SecretProtection():
            raise ValueError("(p, r)-secret protection does not convert to groups: it compares with one reference only")


def to_adjacency(guarantee: Guarantee, *, source: Adjacency | str, to: Adjacency | str) -> Guarantee:
    """A guarantee at another adjacency.

    Exchanging a record is two steps under add_remove (one is removed, one added) and two under zero_out (one becomes
    null, and the null becomes the other). So replace_one follows from either as for a group of two. Nothing else
    follows.

    Args:
        guarantee: at adjacency `source`.
        source: the adjacency at which it holds.
        to: the wanted adjacency.

    Raises:
        ValueError: if nothing follows, with the reason.
    """
    start, end = (Adjacency(validate.one_of(tuple(Adjacency), adjacency=name)) for name in (source, to))
    if start is end:
        return guarantee
    if end is Adjacency.REPLACE_ONE and start is not Adjacency.SECRET:
        return for_group(guarantee, 2)
    reason = _REFUSED.get((start, end), "which records change together with a secret is another question")
    raise ValueError(f"a guarantee at {start} does not convert to {end}: {reason}")


def to_replace_one(guarantee: Guarantee) -> Guarantee:
    """The guarantee under replace_one that follows from one under add_remove: that for a group of two."""
    return to_adjacency(guarantee, source=Adjacency.ADD_REMOVE, to=Adjacency.REPLACE_ONE)


def _renyi(alpha: float, divergence: float, size: int) -> RDP:
    """Half the order, twice the group: D_β(P‖Q) ≤ (β − 1/2)/(β − 1)·D_{2β}(P‖R) + D_{2β−1}(R‖Q), D_{2β−1} ≤ D_{2β}."""
    order, grown = Fraction(alpha), Fraction(divergence)
    for _ in range((size - 1).bit_length()):
        order /= 2
        if order <= 1:
            raise ValueError(
                f"RDP of order {alpha!r} gives no bound for a group of {size}: every doubling of the group halves the "
                f"order, which must stay above 1"
            )
        grown *= (2 * order - Fraction(3, 2)) / (order - 1)
    return RDP(float(order), formulas.up(grown))


def deltas_of_group(epsilons: Floats, deltas: Floats, size: int) -> Floats:
    """The δ of a group of k at each kε, for a δ of one unit at ε: δ Σ_{i<k} e^{iε}, at most 1, rounded up.

    Args:
        epsilons: of either sign, shape (n,).
        deltas: from 0 to 1, shape (n,).
        size: k ≥ 1.
    """
    # With ε > 0: e^{(k−1)ε}(1 − e^{−kε})/(1 − e^{−ε}); with ε < 0: (1 − e^{kε})/(1 − e^ε).
    apart = np.abs(epsilons)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(apart > 0, np.expm1(-size * apart) / np.expm1(-apart), float(size))
        log_deltas = np.log(deltas)
    log_sums = np.maximum((size - 1) * epsilons, 0.0) + np.log(ratio)
    # NumPy's functions are within 4 units in the last place.
    errors = 64 * _UNIT * (1 + np.abs(log_deltas) + np.abs(log_sums))
    with np.errstate(invalid="ignore"):
        grown = np.exp(np.minimum(log_deltas + log_sums + errors, 0.0)) + _LEAST
    return np.where(deltas > 0, grown, 0.0)


def delta_of_group(epsilon: float, delta: float, size: int) -> float:
    """`deltas_of_group` of one."""
    return float(deltas_of_group(np.array([epsilon], dtype=np.float64), np.array([delta], dtype=np.float64), size)[0])
