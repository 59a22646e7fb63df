"""What every audit says: the ε that its bound shows, or, if it found nothing, the leak that it detects with 50 % power.

A ceiling is what perfect guesses would have shown, and reads like reassurance where it is none. The leak that a test of
this size misses half of the time is computed by `dpassay.audits.statistics.power`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

from scipy import special

from dpassay.accounting.bounds import Bound
from dpassay.audits.statistics.ceilings import ErrorRates, OneRun
from dpassay.audits.statistics.power import Test, detectable_epsilon, detectable_share
from dpassay.base.number_format import format_confidence, format_lower, format_number, format_percent, format_upper

_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Detectable:
    """The smallest leaks that a test detects with 50 % power; None if there is none, or it is not computed.

    Attributes:
        claim: ε that the test is to exceed; None for any ε above 0.
        epsilon: ε of randomised response, which is the best attack on a mechanism of this ε if the number of guesses
            is fixed.
        share: the share of what is in the data that must be given away (`dpassay.audits.statistics.detectable_share`).
        by_chance: the share of what is not in the data that is hit all the same.
        fixed: whether the number of guesses is fixed.
    """

    claim: float | None
    epsilon: float | None
    share: float | None
    by_chance: float
    fixed: bool

    @property
    def right(self) -> float | None:
        """The share of right answers of randomised response of this ε."""
        return None if self.epsilon is None else float(special.expit(self.epsilon))

    @property
    def chance(self) -> float:
        """The power: the probability with which these leaks are detected."""
        return 0.5

    @property
    def is_blind(self) -> bool:
        """Whether the test has less than 50 % power, whatever leaks, even everything."""
        return self.epsilon is None and self.share is None

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain JSON types."""
        return {**dataclasses.asdict(self), "chance": self.chance}

    def sentence(
        self, given_away: str = "", *, right: str = "of its guesses are right", others: str = "and no others"
    ) -> str:
        """What the test detects with 50 % power, as one sentence: what happens to the share that is `given_away` (empty
        to leave it out), what a share of right answers means, and that `others`, which are not in the data, are not
        hit."""
        does = "show a leak" if self.claim is None else "refute the claim"
        ways = []
        if self.epsilon is not None and self.right is not None:
            whose = "the best attack at" if self.fixed else "randomised response of"
            at = f"{whose} ε = {format_upper(self.epsilon, _DIGITS)}"
            ways.append(f"{format_percent(self.right, 'up')} {right} ({at})")
        if self.share is not None and given_away:
            also = "" if self.fixed else f" {others}" if not self.by_chance else ", and others as often as here"
            ways.append(f"{format_percent(self.share, 'up')} {given_away}{also}")
        if not ways:
            return f"A test of this size has less than 50 % power to {does}, whatever leaks."
        leak = ", or if ".join(ways)
        return f"A test of this size has 50 % power to {does} if {leak}; less for smaller leaks."


@functools.lru_cache(maxsize=256)
def detectable(
    test: Test,
    claim: float | None = None,
    *,
    confidence: float,
    delta: float = 0.0,
    by_chance: float = 0.0,
    share: bool = True,
) -> Detectable:
    """The smallest leaks that a test detects with 50 % power: that exceed a claimed ε, or any ε above 0.

    Args:
        confidence, delta: of the bound.
        by_chance: the share of what is not in the data that is hit all the same; for tests without a fixed number of
            guesses.
        share: whether the share is computed, too.
    """
    above = 0.0 if claim is None or math.isinf(claim) else claim
    fixed = isinstance(test, OneRun)
    return Detectable(
        claim=claim,
        epsilon=detectable_epsilon(test, above, confidence=confidence, delta=delta)
        if isinstance(test, OneRun | ErrorRates)
        else None,
        share=detectable_share(test, above, confidence=confidence, delta=delta, by_chance=0.0 if fixed else by_chance)
        if share
        else None,
        by_chance=0.0 if fixed else by_chance,
        fixed=fixed,
    )


def epsilon_shown(bound: Bound, confidence: float | None = None) -> str:
    """``ε ≥ 1.2 at δ = 1e-5 with confidence .95``, that of the bound or of several jointly."""
    at = f" at δ = {format_number(bound.delta)}" if bound.delta else ""
    level = format_confidence(bound.confidence or 0.0 if confidence is None else confidence)
    return f"ε ≥ {format_lower(bound.value)}{at} with confidence {level}"
