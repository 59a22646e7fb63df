"""Privacy odometers: what an interaction has cost so far, valid whenever its own outcomes say "stop".

An accountant's ε(δ) of what has run is no bound at a moment that was chosen by looking at the outcomes: someone who
waits for a likelihood ratio above it will get one. An odometer reads a little more, and holds at every such moment.
Why is in `cupel.accounting.filters.adaptive`.

The reading is that of a mixture over Rényi orders. A union over a grid of filters, each with a share of δ (Rogers et
al. 2016; Lécuyer 2021), reads at least as much: where a filter with budget ε_k, order α_k and share w_k is still open,
the mixture with these orders and weights reads at most ε_k. Against a filter whose order was tuned in advance to the
final cost the loss is at most log(1/w_α)/(α − 1) in ε; ``docs/filters.md`` has it in numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Self

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.bounds import Bound
from cupel.accounting.conversions import formulas
from cupel.accounting.filters.adaptive import (
    BudgetExhausted,
    Meter,
    Spend,
    equal_weights,
    simultaneous_epsilon,
    split_delta,
    stopped_epsilon,
)


class Odometer:
    """A running upper bound on ε at a fixed δ, valid at every moment that may be chosen from the released outputs.

    It promises: for every strategy that picks what runs next and when to stop from what was released, for all
    neighbours and every set E of transcripts, P(E) ≤ E_Q[1_E e^ε] + δ, where ε is the reading at the end of the
    transcript. What it charges never decreases; it cannot be copied, because two copies would each
    miss what the other one charged.

    Args:
        delta: δ in (0, 1); also 0 for basic.
        adjacency: the neighbouring relation of everything that is charged.
        unit: record or user.
        method: rdp (all events that have a Rényi divergence), zcdp (exact sums), or basic (Σ ε_i, Σ δ_i ≤ δ).
        orders: as for `Meter`; all have the same weight. Fewer orders lose less: an odometer of one order reads what
            the filter of that order reads.
        step_delta: δ″, the part of `delta` that is kept for the δ_i of (ε_i, δ_i)-DP steps; all of it for basic.

    Raises:
        ValueError: for anything else.
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
        """An odometer that has charged all of `spends`, as after a restart; the other arguments are the class's own."""
        odometer = cls(delta, **options)
        for spend in spends:
            odometer.charge(spend)
        return odometer

    def charge(self, spend: Spend) -> None:
        """Charges an event, or a guarantee, before it runs.

        Raises:
            BudgetExhausted: where Σ δ_i would exceed `step_delta`; an odometer has no other budget.
            ValueError: where there is no bound on its cost; then nothing was charged.
        """
        cost = self.meter.cost(spend)
        with self._lock:
            total = self.meter.add(self._total, cost)
            if total.delta > self.step_delta:
                raise BudgetExhausted(
                    f"the δ of the steps would be {float(total.delta):g}, "
                    f"and {float(self.step_delta):g} is kept for them"
                )
            self._total = total

    def epsilon(self, *, simultaneous: bool = False) -> Bound:
        """The reading.

        Args:
            simultaneous: a slightly larger one, for looking back: with probability 1 − δ under P, the log-likelihood
                ratio never exceeded what the odometer read at the same time. Not with (ε_i, δ_i) steps, whose
                likelihood ratio is not bounded.
        """
        total = self._total
        if simultaneous and total.delta:
            raise ValueError("an (ε_i, δ_i) step has no bound on its likelihood ratio; ask without simultaneous")
        value = formulas.up(total.pure)
        if self.meter.accountant.name != "basic":
            formula = simultaneous_epsilon if simultaneous else stopped_epsilon
            value = min(
                value, formula(self.meter.orders, self.weights, self.meter.divergences(total), self.conversion_delta)
            )
        return self.meter.bound(total, value, "epsilon", delta=self.delta or None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an odometer cannot be copied or pickled: replay what it charged")
