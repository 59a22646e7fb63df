"""The settings of audits of released text and tables, fixed before the synthetic file is read."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.auditing.files import claimed_guarantee
from dpassay.base import defaults, validate
from dpassay.base.progress import Progress
from dpassay.data.columns import Kind, Rules
from dpassay.data.reader import FOUND, CsvOptions, FileOptions
from dpassay.data.table_schema import kinds_of, read_schema


@dataclass(frozen=True, kw_only=True)
class HoldoutSettings:
    """The arguments that `audit_text` and `audit_table` share; `reading` says how all files are written.

    Each of k attacks has confidence 1 − (1 − confidence)/k, for its bound and for all its intervals jointly.
    """

    source: Path
    holdout: Path
    reading: CsvOptions = FOUND
    coins: bool = False
    epsilon: float | None = None
    delta: float = 0.0
    confidence: float = defaults.CONFIDENCE
    progress: Progress = field(default_factory=Progress)

    def check(self) -> None:
        """Raises `ValueError` for numbers out of range, and for a claim without coins."""
        validate.probability_below_one(delta=self.delta)
        validate.open_probability(confidence=self.confidence)
        if self.epsilon is not None:
            validate.non_negative(epsilon=self.epsilon)
            if not self.coins:
                raise ValueError(
                    "--epsilon needs --coins: without an independent fair coin for each unit nothing follows for ε; "
                    "leave --epsilon out, or split the records by coins before you generate"
                )

    @property
    def claim(self) -> PureDP | ApproxDP | None:
        """The claim, or None."""
        return claimed_guarantee(self.epsilon, self.delta)

    @property
    def files(self) -> str:
        """Source and holdout, for messages."""
        return f"{self.source} and {self.holdout}"


@dataclass(frozen=True, kw_only=True)
class TableAuditSettings(HoldoutSettings):
    """The arguments of `audit_table`."""

    secrets: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    user: str | None = None
    ignore: tuple[str, ...] = ()
    number: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    schema: Path | None = None
    reading: FileOptions = FOUND
    limit: int = defaults.TABLE_UNITS
    seed: int = 0

    def check(self) -> None:
        """Raises `ValueError` for numbers out of range, and for a column that is stated to be two things."""
        super().check()
        validate.integer(minimum=2, limit=self.limit)
        validate.integer(seed=self.seed)
        named = [*self.ignore, *self.number, *self.categorical, *((self.user,) if self.user is not None else ())]
        for column in named:
            if named.count(column) > 1:
                raise ValueError(f"column {column!r} is named twice; name it once, as what it is")
        for option, columns in (("secret", self.secrets), ("link", self.link)):
            for column in columns:
                if columns.count(column) > 1:
                    raise ValueError(f"--{option} names column {column!r} twice; name it once")
                if column in self.unused:
                    raise ValueError(
                        f"--{option} names column {column!r}, which is not compared: {self.unused[column]}"
                    )

    @property
    def unused(self) -> dict[str, str]:
        """Why some columns are left alone, by name."""
        why = dict.fromkeys(self.ignore, "ignored, as stated")
        return why if self.user is None else why | {self.user: "names the users, who are the units"}

    @functools.cached_property
    def rules(self) -> Rules:
        """What is stated of columns: by the options, and else by the schema.

        Raises:
            InputError: if there is no such schema.
        """
        kinds = {} if self.schema is None else kinds_of(read_schema(self.schema)[0])
        kinds |= dict.fromkeys(self.number, Kind.NUMBER) | dict.fromkeys(self.categorical, Kind.CATEGORY)
        return Rules(kinds, tuple(self.reading.missing or ()), self.reading.decimal)
