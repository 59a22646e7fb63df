"""The content of a plan of many runs (``private/plan.json``): what is fixed before the first run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import AliasChoices, Field, FiniteFloat

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.attacks.black_box.column_facts import ColumnFacts, Use
from dpassay.attacks.black_box.output_events import IN_ALL_COLUMNS, Event
from dpassay.attacks.black_box.output_features import Features
from dpassay.attacks.black_box.probes import pair_name
from dpassay.attacks.black_box.worst_cases import FINDS, OWN, difference_in_words
from dpassay.auditing.files import Claimed, Part
from dpassay.auditing.many_runs.own_files import PlannedOwn
from dpassay.auditing.many_runs.probes import PlannedProbe, place
from dpassay.audits.games.many_runs_design import ManyRunsDesign, Pair
from dpassay.audits.verdict import may_refute
from dpassay.base.errors import InputError
from dpassay.base.former_name import FORMER_NAME
from dpassay.data.column_summary import ColumnSummary
from dpassay.data.columns import Column, Form, Kind
from dpassay.data.reader import Dialect, FileOptions


class PlannedColumn(Part):
    """A column of the data: what features need of `ColumnFacts`, how its numbers are written, and which words in it
    mean that a cell is missing. Plans of earlier versions have neither."""

    name: str
    kind: Use
    low: FiniteFloat
    high: FiniteFloat
    decimals: int = Field(ge=0, le=300)
    form: Form | None = None
    marks: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, facts: ColumnFacts) -> PlannedColumn:
        """The column that strategies knew."""
        known = facts.column
        return cls(
            name=facts.name,
            kind=facts.kind,
            low=facts.low,
            high=facts.high,
            decimals=facts.decimals,
            form=None if known is None else known.form,
            marks=[] if known is None else sorted(known.marks),
        )

    @property
    def facts(self) -> ColumnFacts:
        """The column in the form that features take."""
        form = Form.POINT if self.form is None and self.kind == "number" else self.form
        kind = Kind.CATEGORY if form is None else form.kind
        column = Column(self.name, kind, form, 0, 0, 0, 0, marks=frozenset(self.marks))
        return ColumnFacts(self.name, self.kind, self.low, self.high, self.decimals, column=column)


class PlannedDialect(Part):
    """How the data, if they are CSV, and so the data sets are written (`dpassay.data.reader.Dialect`)."""

    separator: str
    encoding: str
    header: bool

    @classmethod
    def of(cls, dialect: Dialect) -> PlannedDialect:
        """What the reader of the data found, or was told."""
        return cls(separator=dialect.separator, encoding=dialect.encoding, header=dialect.header)

    @property
    def options(self) -> FileOptions:
        """The same as options of the reader."""
        return FileOptions(separator=self.separator, encoding=self.encoding, header=self.header)


class UnderstoodColumn(Part):
    """What was understood of a column (`ColumnSummary`)."""

    name: str
    kind: str
    form: str
    missing: dict[str, int]
    distinct: dict[str, int]
    used: bool
    why: str
    warnings: tuple[str, ...]


class Understood(Part):
    """What was understood of the data: how they are written, in words, and each column."""

    written: str
    columns: list[UnderstoodColumn]

    @property
    def summaries(self) -> tuple[ColumnSummary, ...]:
        """The columns."""
        return tuple(ColumnSummary(**dict(column)) for column in self.columns)


class PlannedEvent(Part):
    """An event that a strategy expects."""

    feature: str
    threshold: FiniteFloat

    @property
    def event(self) -> Event:
        """The event in the form that audits take."""
        return Event(self.feature, self.threshold)


class PlannedPair(Part):
    """A pair of neighbours: D, D′, and where they differ."""

    name: str
    data: int
    neighbor: int
    target: dict[str, Any]
    novel: list[str]
    events: list[PlannedEvent]


class RunsPlan(Part):
    """What is fixed before the first run (``private/plan.json``).

    Attributes:
        schema_version: of this file.
        dpassay: version that planned.
        seed: from which each run has its own, so that functions and commands that take one can be repeated.
        like: the file of the data.
        suffix: of data sets and outputs.
        data_sets: SHA-256 of each data set, ``private/data/NN``.
        columns: of the data.
        pairs: of neighbours.
        runs: number of runs, pilot runs included.
        confidence: of the bound.
        delta: δ of the bound.
        claim: or None.
        adjacency, unit: of the claim.
        failures: whether pairs are tested on whose D′ every run fails.
        dialect: of the data; None if they are no CSV.
        header: whether it was stated that the first line of CSV names the columns; None if it was not.
        understood: of the data; None for plans of earlier versions.
        held: the features of each data set itself, by pair, as those of an output; empty for plans of earlier versions,
            in which the first of events that are equally good is tested, not the plainest.
        title: what the user calls the audit; empty for none.
        probe: the probing data set; None for none, and for plans of earlier versions.
        halving: whether pairs are compared by halving (`ManyRunsDesign`), as in plans of version 0.2.
        own: the only pair, if the user gave it; None if strategies made the pairs.
    """

    schema_version: Literal[1] = 1
    dpassay: str = Field(validation_alias=AliasChoices("dpassay", FORMER_NAME))
    seed: int = Field(ge=0)
    like: str
    suffix: str = Field(pattern=r"^\.(jsonl|csv|tsv|parquet)(\.gz|\.zst)?$")
    data_sets: list[str]
    columns: list[PlannedColumn]
    pairs: list[PlannedPair]
    runs: int
    confidence: float
    delta: float
    claim: Claimed | None
    adjacency: str
    unit: str
    failures: bool
    dialect: PlannedDialect | None = None
    header: bool | None = None
    understood: Understood | None = None
    held: list[dict[str, dict[str, FiniteFloat]]] = Field(default_factory=list)
    title: str = ""
    probe: PlannedProbe | None = None
    halving: bool = True
    own: PlannedOwn | None = None

    @property
    def names(self) -> frozenset[str]:
        """The columns of the data."""
        return frozenset(column.name for column in self.columns)

    @property
    def is_csv(self) -> bool:
        """Whether data sets and outputs are text with a separator between cells."""
        return self.suffix.startswith((".csv", ".tsv"))

    def design(self, *, stop: bool = True) -> ManyRunsDesign:
        """The design of the audit."""
        return ManyRunsDesign(
            pairs=tuple(
                Pair(
                    pair.name,
                    pair.data,
                    pair.neighbor,
                    tuple(item.event for item in pair.events),
                    FINDS[pair.name],
                    self._differs(pair.name),
                    self._held(pair),
                )
                for pair in self.pairs
            ),
            runs=self.runs,
            confidence=self.confidence,
            adjacency=Adjacency(self.adjacency),
            unit=Unit.parse(self.unit),
            claim=None if self.claim is None else self.claim.guarantee,
            delta=self.delta,
            failures=self.failures,
            stop=stop,
            plainest=bool(self.held),
            probe=None if self.probe is None else self.probe.design(len(self.data_sets)),
            halving=self.halving,
        )

    def _differs(self, name: str) -> str:
        """What D and D′ of a pair are, as one sentence."""
        adjacency = Adjacency(self.adjacency)
        if self.own is not None:
            return self.own.differs(adjacency)
        return difference_in_words(name, adjacency, Unit.parse(self.unit).size)

    def _held(self, pair: PlannedPair) -> tuple[Features, Features] | None:
        """The features of a pair's data sets."""
        if not self.held:
            return None
        first, second = ({**self.held[data][""], **self.held[data][pair.name]} for data in (pair.data, pair.neighbor))
        return first, second

    def pairs_of(self, data: int) -> list[str]:
        """The names of the pairs, or ladders, that a data set belongs to."""
        if self.probe is not None and data == self.probe.data:
            return [ladder.name for ladder in self.probe.ladders]
        if self.probe is not None and data >= len(self.data_sets):
            at = place(data, len(self.data_sets))
            return [pair_name(self.probe.ladders[at.ladder].name, at.level)]
        return [pair.name for pair in self.pairs if data in (pair.data, pair.neighbor)]

    def check(self) -> None:
        """Checks that fields are consistent.

        Raises:
            InputError: if there is a probe, which the rules of version 0.2 have not.
            ValueError, LookupError: if other fields are inconsistent.
        """
        if self.halving and self.probe is not None:
            raise InputError("has a probe, which plans by the rules of version 0.2 (halving) have not")
        design = self.design()
        if design.claim is not None and not may_refute(design.confidence):
            raise ValueError("no audit of this confidence refutes a claim")
        if self.dialect is not None:
            self.dialect.options  # noqa: B018 - raises if there is no such way to write a file
        if self.own is not None:
            self.own.check()
            if [pair.name for pair in self.pairs] != [OWN] or self.probe is not None:
                raise ValueError("the user's own pair is the only one")
        names = {column.name for column in self.columns}
        if self.probe is not None:
            numbers = [self.probe.data, *(ladder.data for ladder in self.probe.ladders)]
            if max(numbers) >= len(self.data_sets) or not all(ladder.marks for ladder in self.probe.ladders):
                raise ValueError("a probe names a data set that is not there")
        for pair in self.pairs:
            if not names <= pair.target.keys() or not names.issuperset(pair.novel):
                raise ValueError("a target lacks a column")
            most = {item.threshold for item in pair.events if item.feature in IN_ALL_COLUMNS}
            if not all(1 <= threshold <= 2 * len(names) for threshold in most):
                raise ValueError("a column has two signs at most")
            if not 0 <= pair.data < len(self.data_sets) or not 0 <= pair.neighbor < len(self.data_sets):
                raise ValueError("a pair names a data set that is not there")
        if self.held:
            if len(self.held) != len({number for pair in self.pairs for number in (pair.data, pair.neighbor)}):
                raise ValueError("features belong to data sets")
            for data, features in enumerate(self.held):
                checked_features(features, self.pairs_of(data))


def checked_features(features: Any, pairs: Sequence[str]) -> dict[str, Features]:
    """Features as they were written: those of each of these pairs, and those of every pair.

    Raises:
        ValueError: if they are something else.
    """
    if set(features) != {"", *pairs}:
        raise ValueError("features belong to the pairs of a data set")
    results = {str(pair): {str(name): float(value) for name, value in item.items()} for pair, item in features.items()}
    if not all(math.isfinite(value) for item in results.values() for value in item.values()):
        raise ValueError("a feature is a number")
    return results
