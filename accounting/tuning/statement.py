"""What people say of their tuning, in words: how many runs there were, or from which law their number was drawn."""

from __future__ import annotations

from dataclasses import dataclass

from dp_accounting import DpEvent, dp_event

from dpassay.accounting.names import NEGATIVE_BINOMIAL, RUN_DISTRIBUTIONS, RUN_SHAPES
from dpassay.accounting.tuning.runs import NumberOfRuns
from dpassay.base import validate
from dpassay.base.number_format import format_number


@dataclass(frozen=True)
class Tuning:
    """Several runs, of which the best is released.

    Attributes:
        runs: how many there were, at least 1, if their number was fixed; all of them are then charged.
        mean: else the expected number, at least 1 (for a Poisson number above 0).
        distribution: of the number of runs, one of `RUN_DISTRIBUTIONS`; geometric if it is not said.
        shape: of a truncated negative binomial number, at least 0.
    """

    runs: int | None = None
    mean: float | None = None
    distribution: str | None = None
    shape: float | None = None

    def __post_init__(self) -> None:
        if (self.runs is None) == (self.mean is None):
            raise ValueError("say either how many runs there were, or the mean of a random number of runs")
        if self.runs is not None:
            validate.integer(minimum=1, maximum=10**6, runs=self.runs)
            if (self.distribution, self.shape) != (None, None):
                raise ValueError("distribution and shape are of a random number of runs: give its mean, not runs")
            return
        if self.distribution is not None:
            validate.one_of(RUN_DISTRIBUTIONS, distribution=self.distribution)
        if (self.shape is None) == (self.distribution == NEGATIVE_BINOMIAL):
            raise ValueError(f"shape goes with distribution {NEGATIVE_BINOMIAL}, and with no other")
        self._number()

    def _number(self) -> NumberOfRuns:
        shape = RUN_SHAPES[self.distribution or "geometric"] if self.shape is None else self.shape
        return NumberOfRuns(self.mean or 0.0, shape)

    def of(self, run: DpEvent) -> DpEvent:
        """What all runs cost, given what one of them costs."""
        if self.runs is not None:
            return dp_event.SelfComposedDpEvent(run, self.runs)
        number = self._number()
        return dp_event.RepeatAndSelectDpEvent(run, number.mean, number.shape)

    @property
    def in_words(self) -> str:
        """Which runs are charged."""
        if self.runs is not None:
            return f"{self.runs} run{'s' if self.runs != 1 else ''}, each of them charged"
        law = (self.distribution or "geometric").replace("_", " ")
        shape = "" if self.shape is None else f" and shape {format_number(self.shape)}"
        return f"the best of a random number of runs, {law} with mean {format_number(self.mean or 0.0)}{shape}"
