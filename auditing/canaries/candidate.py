"""One canary, and the scores of many."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, FiniteFloat

from dpassay.attacks.canaries.texts import Echo
from dpassay.base.arrays import Floats


class Canary(BaseModel):
    """A candidate: a text, whose end the attack looks for, or a row of a table.

    Attributes:
        text: of a key or an echo.
        start: where its end begins.
        value: the number of a key, or a new category; empty in plans of version 0.2.
        row: of a table, by column.
        column: of the new category.
        reference: what the score is compared with: log-probability of the end under a model of the data, or distance
            to the nearest row of the data.
        expected: for each pair of columns, how many rows of the data are expected to agree with the canary in both.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = ""
    start: int = 0
    value: str = ""
    row: dict[str, str | int | float | bool | None] | None = None
    column: str = ""
    reference: float = 0.0
    expected: tuple[FiniteFloat, ...] = ()

    @property
    def end(self) -> str:
        """The end of the text, which the attack looks for."""
        return self.text[self.start :]

    @property
    def key(self) -> str:
        """The number of a key."""
        return self.value or self.end

    @property
    def echo(self) -> Echo:
        """The canary in the form that `dpassay.attacks.canaries.texts` takes."""
        return Echo(self.text, self.start)


Canaries = Sequence[Canary]
Scores = tuple[Floats, Floats]
"""Scores by the synthetic file, and by the file with all planted canaries added; each of shape (canaries,)."""
