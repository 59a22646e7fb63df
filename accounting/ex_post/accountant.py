"""The ex-post accountant: the cost of a finished run, from the realised costs in its ledger."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Self

from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events, names
from dpassay.accounting.accountants.base import Unsupported
from dpassay.accounting.accountants.basic import Basic
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.conversions.formulas import up
from dpassay.accounting.ex_post.costs import RealisedCost
from dpassay.base import validate


class ExPost(Basic):
    """Data-dependent ex-post ε (Ligett et al. 2017). It adds to pure ε only, and never converts.

    Rigor: certified, for the one run whose costs it is given; see `of_run`.
    """

    name = names.EX_POST
    converts_groups = False

    def __init__(self, adjacency: Adjacency | str, unit: Unit | str | None = None) -> None:
        super().__init__(adjacency, unit)
        self._realised: Mapping[str, RealisedCost] | None = None
        self._moved: Mapping[str, RealisedCost] | None = None

    def supports(self, event: DpEvent) -> str | None:
        if self.adjacency not in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
            return f"ex_post costs are defined under add_remove and replace_one, not {self.adjacency}"
        if not self.unit.is_single:
            return f"an ex-post ε does not convert to a {self.unit.kind}: the data sets in between have another ε"
        if reason := super().supports(event):
            return f"an ex-post ε adds to pure ε only, and {reason}"
        return None

    def realise(self, realised: Mapping[str, RealisedCost], moved: Mapping[str, RealisedCost] | None = None) -> Self:
        """This accountant with the realised costs of the run's parts.

        Args:
            realised: the cost of each part at this adjacency.
            moved: under replace_one, the add_remove costs of the same parts; see `of_run`.
        """
        new = self.compose(dp_event.NoOpDpEvent())
        new._realised, new._moved = dict(realised), None if moved is None else dict(moved)
        return new

    def compose(self, event: DpEvent, count: int = 1) -> Self:
        """This accountant with more events; realised costs are kept."""
        new = super().compose(event, count)
        new._realised, new._moved = self._realised, self._moved
        return new

    def epsilon(self, delta: float = 0.0) -> Bound:
        """The ex-post ε of the run, at δ = 0.

        Raises:
            Unsupported: if no realised costs were given.
        """
        validate.probability(delta=delta)
        if self._realised is None:
            raise Unsupported("ex_post needs the realised costs of a run; pass a run to account, or use ex_post.of_run")
        others = Basic(self.adjacency, self.unit).compose(_without_ex_post(self.event)).cost
        total = math.nextafter(self._worst(self._realised) + up(others), math.inf)
        return dataclasses.replace(self._bound(total, "ex_post_epsilon"), private=True)

    def delta(self, epsilon: float) -> Bound:
        raise Unsupported("an ex-post ε has no δ: it holds for one input and one output")

    def beta(self, alpha: float) -> Bound:
        raise Unsupported("an ex-post ε has no trade-off curve: it holds for one input and one output")

    def blowup(self, p: float) -> Bound:
        raise Unsupported("an ex-post ε has no blow-up: it holds for one input and one output")

    def _worst(self, realised: Mapping[str, RealisedCost]) -> float:
        worst = max((max(minus, plus) for minus, plus in map(_sums, realised.values())), default=0.0)
        if self.adjacency is Adjacency.ADD_REMOVE or len(realised) < 2 or _is_public(self.event):
            return worst
        if self._moved is None or self._moved.keys() != realised.keys():
            raise ValueError(
                "under replace_one a unit may move to another part; give the add_remove costs of the same parts as "
                "`moved`, or make the partition public"
            )
        sides = zip(*map(_sums, self._moved.values()), strict=True)
        pairs = [math.nextafter(sum(sorted(side)[-2:]), math.inf) for side in sides]
        return max(worst, *pairs)


def of_run(
    realised: Mapping[str, RealisedCost],
    event: DpEvent,
    *,
    adjacency: Adjacency | str,
    unit: Unit | str | None = None,
    moved: Mapping[str, RealisedCost] | None = None,
) -> Bound:
    """The ex-post ε of a finished run. It depends on the private data; do not release it.

    Under add_remove one part changes, so the ε is the largest ε* = max(Σ u⁻, Σ u⁺) of a part. Under replace_one the new
    unit either replaces its predecessor in its part, at that part's ε* under replace_one, or leaves part b and enters
    part b′, at the sum of their add_remove costs of matching sign. The largest of all is returned. The second case
    cannot occur if the partition is public. The pure ε of all other events is added.

    Args:
        realised: the cost of each part, at `adjacency`.
        event: everything that the run was charged; `realised` replaces its `ExPostSelectionDpEvent`s.
        adjacency: add_remove or replace_one.
        unit: record or user.
        moved: under replace_one with a partition that is not public, the add_remove costs of the same parts. If only
            the larger of both costs was kept, per token and sign, pass the same mapping twice.

    Raises:
        ValueError: for another adjacency or a group; if `moved` is needed and missing; if another event has no pure ε,
            since an ex-post ε does not add to an (ε, δ) guarantee.
    """
    return ExPost(adjacency, unit).compose(event).realise(realised, moved).epsilon()


def _sums(part: RealisedCost) -> tuple[float, float]:
    return float(validate.non_negative(u_minus=part.u_minus)), float(validate.non_negative(u_plus=part.u_plus))


def _without_ex_post(event: DpEvent) -> DpEvent:
    """`event` without its ex-post selections, whose realised cost counts instead."""
    nothing = dp_event.NoOpDpEvent()
    return events.replaced(event, lambda part: nothing if isinstance(part, events.ExPostSelectionDpEvent) else part)


def _is_public(event: DpEvent) -> bool:
    """Whether every ex-post selection lies in a parallel event whose partition is public."""
    if isinstance(event, events.ParallelDpEvent) and event.partition_is_public:
        return True
    if isinstance(event, events.ExPostSelectionDpEvent):
        return False
    return all(map(_is_public, events.children(event)))
