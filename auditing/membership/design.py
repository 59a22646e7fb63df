"""The settings of a membership audit, fixed before scores are seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.auditing.files import claimed_guarantee
from dpassay.audits.games.membership_design import SIDES, MembershipDesign, Side
from dpassay.base import defaults
from dpassay.base.errors import InputError, input_errors
from dpassay.base.progress import Progress
from dpassay.data.chats import TEXTS, TextOptions

SIGNAL_ATTACKS = ("loss", "lira-online", "lira-offline", "rmia-online", "rmia-offline")
"""Attacks on models, by the signals of them and of reference models."""
TEXT_ATTACKS = ("ngram", "neighbourhood")
"""Attacks on synthetic text."""


@dataclass(frozen=True, kw_only=True)
class MembershipSettings:
    """The arguments of `audit_membership` that say what is done with scores, and how files are written."""

    attacks: tuple[str, ...] = ()
    guesses: tuple[int, ...] = ()
    side: str = "both"
    coins: bool = False
    delta: float = 0.0
    epsilon: float | None = None
    confidence: float = defaults.CONFIDENCE
    unit: str = "record"
    gamma: float = defaults.RMIA_GAMMA
    a: float = defaults.RMIA_A
    order: int = defaults.NGRAM_ORDER
    neighbours: int = defaults.NEIGHBOURS
    seed: int = 0
    reading: TextOptions = TEXTS
    progress: Progress = field(default_factory=Progress)

    @property
    def claim(self) -> PureDP | ApproxDP | None:
        """The claim, or None."""
        return claimed_guarantee(self.epsilon, self.delta)

    def design(self) -> MembershipDesign:
        """The design of the audit.

        Raises:
            InputError: if a setting is out of range.
        """
        side: Side = "in" if self.side == "in" else "both"
        with input_errors():
            if self.side not in SIDES:
                raise ValueError(f"--side must be {' or '.join(SIDES)}, not {self.side!r}")
            return MembershipDesign(
                guesses=self.guesses,
                side=side,
                fair_coins=self.coins,
                delta=self.delta,
                confidence=self.confidence,
                claimed_epsilon=self.epsilon,
                unit=Unit.parse(self.unit),
                seed=self.seed,
            )

    def chosen(self, allowed: Sequence[str], default: str) -> tuple[str, ...]:
        """The attacks that are run, each once.

        Raises:
            InputError: if an attack does not apply to this input.
        """
        wrong = [name for name in self.attacks if name not in allowed]
        if wrong:
            raise InputError(f"--attack must be one of {', '.join(allowed)} for this input, not {wrong[0]!r}")
        return tuple(dict.fromkeys(self.attacks)) or (default,)
