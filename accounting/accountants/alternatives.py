"""Base class of accountants that compose whole distributions with another library.

It is unknown which of several disjoint parts holds the unit that changes, and two privacy-loss distributions have no
largest one in general. So the cost of an event is a set of alternatives, each a plain composition. A bound is the worst
over all.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from dp_accounting import DpEvent, dp_event

from dpassay.accounting.accountants.base import Accountant, Unsupported
from dpassay.accounting.bounds import Bound, Rigor
from dpassay.base import validate

Composition = tuple[tuple[DpEvent, int], ...]
"""Events that contain no composition, with counts, each event once, in the order of their `repr`."""
Alternatives = tuple[Composition, ...]

_MAX_COMPOSITIONS = 16


class DistributionAccountant(Accountant[Alternatives]):
    """Base class of the accountants that pass plain compositions to another library.

    Rigor: estimate, since the libraries do not count their numerical error.
    """

    library: ClassVar[str]

    @classmethod
    def is_installed(cls) -> bool:
        """Whether the library is installed."""
        return importlib.util.find_spec(cls.library) is not None

    def epsilon(self, delta: float) -> Bound:
        """The largest ε(δ) over the alternatives, as computed by the library."""
        validate.open_probability(delta=delta)
        value = max(math.inf if _is_open(each) else self._epsilon_of(each, delta) for each in self.cost)
        return self._estimate(max(value, 0.0), "epsilon", delta=delta)

    def delta(self, epsilon: float) -> Bound:
        """The largest δ(ε) over the alternatives, as computed by the library."""
        validate.non_negative(epsilon=epsilon)
        value = max(1.0 if _is_open(each) else self._delta_of(each, epsilon) for each in self.cost)
        return self._estimate(min(max(value, 0.0), 1.0), "delta", at=epsilon)

    @abstractmethod
    def _epsilon_of(self, composition: Composition, delta: float) -> float: ...

    @abstractmethod
    def _delta_of(self, composition: Composition, epsilon: float) -> float: ...

    def _estimate(self, value: float, quantity: str, *, delta: float | None = None, at: float | None = None) -> Bound:
        assumption = f"The numerical error of {self.library} is not counted."
        return self._bound(value, quantity, delta=delta, at=at, rigor=Rigor.ESTIMATE, assumptions=(assumption,))

    def _rigor(self) -> Rigor:
        return Rigor.ESTIMATE

    def _zero(self) -> Alternatives:
        return ((),)

    def _add(self, costs: Sequence[Alternatives]) -> Alternatives:
        total: Alternatives = ((),)
        for cost in costs:
            total = self._distinct([_merge((*a, *b)) for a, b in itertools.product(total, cost)])
        return total

    def _times(self, cost: Alternatives, count: int) -> Alternatives:
        # The same unit of the same part changes in every run, so an alternative repeats and does not mix with others.
        return tuple(
            tuple((cost_of_single, times * count) for cost_of_single, times in composition) for composition in cost
        )

    def _largest(self, costs: Sequence[Alternatives], how_many: int) -> Alternatives:
        unique = {repr(cost): cost for cost in costs}
        if how_many == 1:
            return self._distinct([composition for cost in unique.values() for composition in cost])
        pairs = list(itertools.combinations(unique.values(), 2))
        pairs += [(cost, cost) for key, cost in unique.items() if sum(repr(other) == key for other in costs) > 1]
        return self._distinct([composition for pair in pairs for composition in self._add(pair)])

    def _distinct(self, compositions: Sequence[Composition]) -> Alternatives:
        unique = tuple({repr(composition): composition for composition in compositions}.values())
        if len(unique) > _MAX_COMPOSITIONS:
            raise Unsupported(
                f"{self.name} compares at most {_MAX_COMPOSITIONS} different compositions of disjoint parts, "
                f"not {len(unique)}"
            )
        return unique


def _is_open(composition: Composition) -> bool:
    """Whether an event is not private at all."""
    return any(isinstance(event, dp_event.NonPrivateDpEvent) for event, _ in composition)


def cost_of_single(accountant: Any, event: DpEvent) -> Alternatives:
    """The cost of an event that contains no composition."""
    return (((event, 1),),)


def _merge(parts: Sequence[tuple[DpEvent, int]]) -> Composition:
    counts: dict[str, tuple[DpEvent, int]] = {}
    for event, count in parts:
        key = repr(event)
        counts[key] = (event, counts.get(key, (event, 0))[1] + count)
    return tuple(pair for _, pair in sorted(counts.items()))
