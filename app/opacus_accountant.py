"""dpassay as an accountant of Opacus, with a certified interval of ε.

    import dpassay.opacus_accountant
    from opacus import PrivacyEngine

    engine = PrivacyEngine(accountant="dpassay")

Importing this module registers the accountant under the name ``dpassay``. It needs Opacus, as in
``pip install '.[opacus]'``.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from opacus.accountants import IAccountant
from opacus.accountants.registry import register_accountant

from dpassay.accounting import registry
from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.bounds import Bound
from dpassay.accounting.interop import opacus
from dpassay.accounting.interop.conditions import Condition, Normalizer, Sampler
from dpassay.accounting.interop.state import SampledGaussian, Stated, read_as

NAME = "dpassay"
_DEFAULTS = {"adjacency": Adjacency.ZERO_OUT, "sampler": Sampler.POISSON, "normalizer": Normalizer.UNKNOWN}


class DpassayAccountant(IAccountant):  # type: ignore[misc]
    """An accountant of Opacus whose ε is certified.

    Attributes:
        sampler: how records are sampled. ``poisson`` is what Opacus does by default; set ``shuffled`` for an engine
            with ``poisson_sampling=False``.
        adjacency: the neighbouring relation of ε, zero_out unless it is set. At ``shuffled``, add_remove has no bound.
        normalizer: what the noisy sum is divided by. Opacus divides by int(n · rate), so add_remove has a bound only at
            ``public``: if n is public, and the divisor is the same for neighbours.
        conditions: names of conditions that hold, such as ``epochs`` (each shuffled epoch runs to its end) and ``once``
            (no step accumulates the gradients of two epochs).
        history: (noise multiplier, sample rate, number of steps), as Opacus' own accountants have it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sampler: Sampler | str = _DEFAULTS["sampler"]
        self.adjacency: Adjacency | str = _DEFAULTS["adjacency"]
        self.normalizer: Normalizer | str = _DEFAULTS["normalizer"]
        self.conditions: Collection[Condition | str] = ()
        self._warned = False

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts a step.

        Args:
            noise_multiplier: σ over the clipping norm.
            sample_rate: share of the records in the step.
        """
        last = self.history[-1] if self.history else None
        if last is not None and tuple(last[:2]) == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, last[2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def bound(self, delta: float) -> Bound:
        """The certified upper bound on ε, with the interval that encloses the exact one, and its assumptions.

        Args:
            delta: δ in (0, 1).

        Raises:
            ValueError: if a number is out of range, such as a sample rate above 1 after gradient accumulation.
        """
        parts = tuple(SampledGaussian(float(noise), float(rate), int(steps)) for noise, rate, steps in self.history)
        reading = read_as(opacus.state_of(parts, self._set_to(), NAME), Stated())
        result = registry.account(reading.event, adjacency=reading.adjacency, delta=delta)
        if result.value == math.inf and reading.hints and not self._warned:
            self._warned = True
            warnings.warn(
                f"ε is infinite. {' '.join(reading.hints)} Set the accountant's attributes adjacency, sampler and "
                "normalizer to what ran",
                stacklevel=2,
            )
        return dataclasses.replace(
            result,
            interval=result.interval if reading.exact else None,
            assumptions=(*result.assumptions, *reading.assumptions),
        )

    def get_epsilon(self, delta: float, *arguments: Any, **options: Any) -> float:
        """The certified upper bound on ε.

        Args:
            delta: δ in (0, 1).
            arguments, options: of other accountants; none is used.
        """
        return self.bound(delta).value

    def _set_to(self) -> Stated:
        """What the attributes say.

        Raises:
            ValueError: if one is no known word.
        """
        words = {name: str(getattr(self, name)) for name in _DEFAULTS}
        return opacus.recorded({**words, "conditions": sorted(map(str, self.conditions))})

    def state_dict(self, destination: Any = None) -> Any:
        """The state of Opacus' accountants, with those attributes of this one that are not the defaults.

        A default is not saved, since nobody may have looked at it: who reads the state is asked for it.

        Args:
            destination: a mapping to write into; None for a new one.
        """
        state = super().state_dict(destination)
        said = self._set_to()
        for name, default in _DEFAULTS.items():
            if (value := getattr(said, name)) not in (None, default):
                state[name] = str(value)
        if said.conditions:
            state["conditions"] = sorted(map(str, said.conditions))
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a state. What it does not hold leaves these attributes as they are.

        Raises:
            ValueError: if it is no state of this accountant, or an attribute in it is no known word.
        """
        saved = opacus.recorded(state_dict or {})
        super().load_state_dict(state_dict)
        for name in (*_DEFAULTS, "conditions"):
            setattr(self, name, getattr(saved, name) or getattr(self, name))

    def __len__(self) -> int:
        """The number of steps so far."""
        return sum(int(steps) for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name by which engines know this accountant."""
        return NAME


register_accountant(NAME, DpassayAccountant, force=True)
