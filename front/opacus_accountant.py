"""cupel as an accountant of Opacus, with a certified interval of ε.

    import cupel.opacus_accountant
    from opacus import PrivacyEngine

    engine = PrivacyEngine(accountant="cupel")

Importing this module registers the accountant under the name ``cupel``. It needs Opacus, as in
``pip install 'cupel[opacus]'``.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping
from typing import Any

from opacus.accountants import IAccountant
from opacus.accountants.registry import register_accountant

from cupel.accounting import registry
from cupel.accounting.adjacency import Adjacency
from cupel.accounting.bounds import Bound
from cupel.accounting.interop import opacus
from cupel.accounting.interop.state import SampledGaussian, Sampler, State, Stated, read_as

NAME = "cupel"


class CupelAccountant(IAccountant):  # type: ignore[misc]
    """An accountant of Opacus whose ε is certified.

    Attributes:
        sampler: how records are sampled. ``poisson`` is what Opacus does by default; set ``shuffled`` for an engine
            with ``poisson_sampling=False``.
        adjacency: the neighbouring relation of ε. At ``shuffled``, add_remove has no bound.
        history: (noise multiplier, sample rate, number of steps), as Opacus' own accountants have it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sampler: Sampler | str = Sampler.POISSON
        self.adjacency: Adjacency | str = Adjacency.ADD_REMOVE
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
        state = State(
            library="Opacus",
            what="the state of Opacus' accountant",
            parts=parts,
            adjacency=Adjacency(self.adjacency),
            sampler=Sampler(self.sampler),
            notes=(opacus.AS_SET,),
        )
        reading = read_as(state, Stated())
        found = registry.account(reading.event, adjacency=reading.adjacency, delta=delta)
        if found.value == math.inf and reading.hints and not self._warned:
            self._warned = True
            warnings.warn(
                f"ε is infinite: no bound is known at adjacency add_remove for sampler {reading.sampler}; set the "
                "accountant's adjacency to 'replace_one' or 'zero_out', or its sampler to what ran",
                stacklevel=2,
            )
        return dataclasses.replace(
            found,
            interval=found.interval if reading.exact else None,
            assumptions=(*found.assumptions, *reading.assumptions),
        )

    def get_epsilon(self, delta: float, *arguments: Any, **options: Any) -> float:
        """The certified upper bound on ε.

        Args:
            delta: δ in (0, 1).
            arguments, options: of other accountants; none is used.
        """
        return self.bound(delta).value

    def state_dict(self, destination: Any = None) -> Any:
        """The state of Opacus' accountants, with ``sampler`` and ``adjacency`` where they are not the defaults.

        A default is not saved, since nobody may have looked at it: who reads the state is asked for it.

        Args:
            destination: a mapping to write into; None for a new one.
        """
        state = super().state_dict(destination)
        if Adjacency(self.adjacency) is not Adjacency.ADD_REMOVE:
            state["adjacency"] = str(Adjacency(self.adjacency))
        if Sampler(self.sampler) is not Sampler.POISSON:
            state["sampler"] = str(Sampler(self.sampler))
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a state. One without ``sampler`` or ``adjacency`` leaves these attributes as they are.

        Raises:
            ValueError: if it is no state of this accountant, or has a sampler or an adjacency that is unknown.
        """
        adjacency, sampler = opacus.recorded(state_dict or {})
        super().load_state_dict(state_dict)
        self.adjacency = self.adjacency if adjacency is None else adjacency
        self.sampler = self.sampler if sampler is None else sampler

    def __len__(self) -> int:
        """The number of steps so far."""
        return sum(int(steps) for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name by which engines know this accountant."""
        return NAME


register_accountant(NAME, CupelAccountant, force=True)
