"""Privacy odometers: an upper bound on the cost so far that holds even if the outcomes decide when to stop.

An accountant's ε(δ) of what has run is no bound at a time that was chosen by looking at the outcomes: one can wait for
a likelihood ratio above it. An odometer's ε is a little larger and holds at every such time.

The ε is that of a mixture over Rényi orders, which is at most that of a union over a grid of filters (Rogers et al.
2016; Lécuyer 2021). Compared with a filter whose order was tuned in advance to the final cost, it is at most
log(1/w_α)/(α − 1) larger; ``docs/filters.md`` has numbers.

Proof: docs/proofs/filters.md, Theorems 3, 8 and 9.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Self

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.conversions import formulas
from dpassay.accounting.filters.adaptive import (
    BudgetExhausted,
    Meter,
    Spend,
    equal_weights,
    simultaneous_epsilon,
    split_delta,
    stopped_epsilon,
)
from dpassay.base import validate


class Odometer:
    """An upper bound on ε at a fixed δ, valid at every time that is chosen from the released outputs.

    For every strategy that chooses the steps and when to stop from the released outputs, for all neighbours, and for
    every set E of transcripts with finite ε, P(E) ≤ E_Q[1_E e^ε] + δ, where ε is the value at the end of the
    transcript. The total never decreases. An odometer cannot be copied, since a copy would not see what the original is
    charged.

    Args:
        delta: δ in (0, 1); also 0 for basic.
        adjacency: the neighbouring relation of everything that is charged.
        unit: record or user.
        method: rdp (all events with a Rényi divergence), zcdp (exact sums), or basic (Σ ε_i, Σ δ_i ≤ δ).
        orders: as for `Meter`, equally weighted. With a single order, ε is that of the filter of that order.
        step_delta: δ″, the part of `delta` for the δ_i of (ε_i, δ_i)-DP steps; for basic it is all of δ.

    Raises:
        ValueError: if an argument is invalid.
    """

    def __init__(
        self,
        delta: float,
        *,
        adjacency: Adjacency | str,
        unit: Unit | None = None,
        method: str = "rdp",
        orders: float | Sequence[float] | None = None,
        step_delta: float = 0.0,
    ) -> None:
        validate.one_of(("basic", "zcdp", "rdp"), method=method)
        self.meter = Meter(method, adjacency, unit, orders)
        if method == "basic":
            self.delta = float(validate.probability(delta=delta))
        else:
            self.delta = float(validate.open_probability(delta=delta))
        self.step_delta, self.conversion_delta = split_delta(self.delta, step_delta, basic=method == "basic")
        self.weights = equal_weights(self.meter.orders)
        self._total = self.meter.zero
        self._lock = threading.Lock()

    @classmethod
    def replay(cls, spends: Iterable[Spend], delta: float, **options: Any) -> Self:
        """An odometer that has charged all of `spends`, for instance after a restart; see `Filter.replay`."""
        odometer = cls(delta, **options)
        for spend in spends:
            odometer.charge(spend)
        return odometer

    def charge(self, spend: Spend) -> None:
        """Charges an event, or a guarantee, before it runs.

        Raises:
            BudgetExhausted: if Σ δ_i would exceed `step_delta`; an odometer has no other budget.
            ValueError: if there is no bound on its cost; nothing was charged.
        """
        cost = self.meter.cost(spend)
        with self._lock:
            total = self.meter.add(self._total, cost)
            if total.delta > self.step_delta:
                raise BudgetExhausted(
                    f"the δ of the steps would be {float(total.delta):g}, above step_delta = {float(self.step_delta):g}"
                )
            self._total = total

    def epsilon(self, *, simultaneous: bool = False) -> Bound:
        """The upper bound on ε of everything charged so far.

        Args:
            simultaneous: a slightly larger ε that holds at all times at once: with probability 1 − δ under P, the
                log-likelihood ratio never exceeded the ε of the same time. Not available with (ε_i, δ_i) steps, whose
                likelihood ratio is unbounded.
        """
        total = self._total
        if simultaneous and total.delta:
            raise ValueError("the likelihood ratio of an (ε_i, δ_i) step is unbounded; use simultaneous=False")
        value = formulas.up(total.pure)
        if self.meter.accountant.name != "basic":
            formula = simultaneous_epsilon if simultaneous else stopped_epsilon
            value = min(
                value, formula(self.meter.orders, self.weights, self.meter.divergences(total), self.conversion_delta)
            )
        return self.meter.bound(total, value, "epsilon", delta=self.delta or None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an odometer cannot be copied or pickled; use Odometer.replay instead")
