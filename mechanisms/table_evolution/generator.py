"""Private evolution of the rows of a table: private rows vote for candidates, and synthetic rows evolve to fit them.

In each round, every private row votes in some views for the candidate that it is in. A view is one column, whose
candidates are parts of its public domain, or a pair of columns (`votes`). The votes of all views of a round get
Gaussian noise and are one release; they are the only use of the rows. From released votes follow the candidates and
views of the next round, and at the end the synthetic rows (`evolution`). No language model is needed.

With the noise multipliers σ_t of T rounds, a run costs what one Gaussian of multiplier (Σ 1/σ_t²)^(−½) costs, which is
`noise_multiplier` up to rounding: μ = 1/σ under add_remove, √2/σ under replace_one.

Proof: docs/proofs/table-evolution.md.

Source: Lin et al., "Differentially Private Synthetic Data via Foundation Model APIs 1: Images" (2023), for private
evolution; the other sources are named in `evolution` and `population`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from dp_accounting import DpEvent

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.entries import Charge, Json
from dpassay.accounting.ledger.run import Run
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.data.table_schema import MISSING, Row, Schema
from dpassay.data.tables import Table
from dpassay.mechanisms.evolution.run import packed, unpacked
from dpassay.mechanisms.evolution.voting import votes_event
from dpassay.mechanisms.primitives import charged
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.public_fields import check_adjacency
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source
from dpassay.mechanisms.table_evolution.candidates import domains_of, positions
from dpassay.mechanisms.table_evolution.evolution import RowEvolution, TableRound, round_shares
from dpassay.mechanisms.table_evolution.votes import exact_votes, noisy_votes

VOTES, INPUTS = "votes", "inputs"
"""Stages of a run in its ledger."""

MAX_COLUMNS = 100
"""The largest number of columns: all pairs of them are voted on."""

_NOISE = (2.0**-20, 2.0**20)
"""Wider than anybody needs, and within the grid of votes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEvolution:
    """The public description of a run: parameters only, which do not depend on the data.

    Attributes:
        noise_multiplier: σ of the whole run, from 2⁻²⁰ to 2²⁰. Under add_remove it is the noise multiplier that
            ``dpassay calibrate`` returns for one Gaussian; under replace_one, 1/√2 times that. 0 is the unprotected
            control.
        records: the public number of rows n.
        rows: number of synthetic rows; None for as many as `records`.
        rounds: number of rounds about single columns, in which candidates become finer; two more are about pairs.
        levels: the largest number of candidates of a column in a pair, up to rounding.
        generations: number of generations in which the synthetic rows evolve.
        seed: of public choices only; noise has no seed.
        adjacency: add_remove or replace_one.
        unit: record.
    """

    noise_multiplier: float
    records: int
    rows: int | None = None
    rounds: int = 3
    levels: int = 40
    generations: int = 200
    seed: int = 0
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)

    def __post_init__(self) -> None:
        if validate.non_negative(noise_multiplier=self.noise_multiplier) and not (
            _NOISE[0] <= self.noise_multiplier <= _NOISE[1]
        ):
            raise ValueError(
                f"noise_multiplier must be 0, or from {_NOISE[0]:.3g} to {_NOISE[1]:.3g}, not {self.noise_multiplier!r}"
            )
        validate.integer(minimum=1, records=self.records)
        if self.rows is not None:
            validate.integer(minimum=1, rows=self.rows)
        validate.integer(minimum=1, maximum=100, rounds=self.rounds)
        validate.integer(minimum=2, levels=self.levels)
        validate.integer(minimum=1, generations=self.generations)
        validate.integer(minimum=0, seed=self.seed)
        check_adjacency(self.adjacency)
        if self.unit != Unit():
            raise ValueError(f"unit must be record for table_evolution, not {str(self.unit)!r}: each row casts votes")

    @property
    def releasable(self) -> bool:
        """Whether the output of a run is protected."""
        return self.noise_multiplier > 0

    @property
    def count(self) -> int:
        """The number of synthetic rows."""
        return self.records if self.rows is None else self.rows

    def noise_multipliers(self) -> list[float]:
        """The noise multiplier of each round."""
        signal = self.records / self.noise_multiplier if self.noise_multiplier else math.inf
        return [self.noise_multiplier / math.sqrt(share) for share in round_shares(self.rounds, signal)]

    def plan(self) -> DpEvent:
        """The event that a whole run charges, in the ledger's canonical form; known before any data are read."""
        return events.compose([(votes_event(item, self.adjacency), 1) for item in self.noise_multipliers()])

    def check(self, schema: Schema) -> None:
        """Checks that tables of a schema can be run, before anything is charged or written.

        Raises:
            ValueError: one line.
        """
        if len(schema.columns) > MAX_COLUMNS:
            raise ValueError(
                f"table_evolution compares all pairs of columns, of which there may be at most {MAX_COLUMNS}, not "
                f"{len(schema.columns)}; leave columns out of the schema and the table"
            )

    def generate(
        self,
        table: Table,
        run: Run,
        *,
        progress: Callable[[int, int], None] | None = None,
        source: Source = OS_ENTROPY,
    ) -> TableEvolutionResult:
        """Generates the synthetic rows, or resumes an interrupted run.

        Args:
            table: private.
            run: of a ledger, begun with `plan()`. Every round is charged before its noise is drawn, and only committed
                values are used; the caller finishes the run.
            progress: called with the number of finished generations of synthetic rows, and that of all.
            source: of the noise. If it is recorded, the run must say so: ``run.about["noise"] == "recorded"``.

        Raises:
            ValueError: if table or parameters are invalid, or differ from those of the interrupted run.
        """
        schema = table.schema
        charged.check_run(run, self.plan(), source)
        self.check(schema)
        mismatch = charged.other_inputs("records, another schema or parameters")
        charged.note(run, INPUTS, self._digest(table), mismatch)
        ballot = _Ballot(self, table, run, source)
        evolution = RowEvolution(
            domains_of(schema),
            self.records,
            self.noise_multipliers(),
            self.levels,
            ballot.released,
            np.random.default_rng(self.seed),
        )
        columns = evolution.rows(self.count, self.generations, progress)
        return TableEvolutionResult(_rows_at(schema, columns), tuple(ballot.rounds))

    def _digest(self, table: Table) -> str:
        """SHA-256 of everything that determines a run; private."""
        known = (self, table.schema.model_dump_json())
        result = hashlib.sha256(repr(known).encode("utf-8", "surrogatepass"))
        for row, name in zip(table.rows, table.ids, strict=True):
            result.update(hashlib.sha256(repr((name, row)).encode("utf-8", "surrogatepass")).digest())
        return result.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedRound:
    """A round, and the released votes of each of its views, in order, shape (candidates,)."""

    asked: TableRound
    votes: tuple[Floats, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TableEvolutionResult:
    """A finished run. If the mechanism is releasable, all of it may be released: synthetic rows in the words of the
    schema, and the votes of all rounds."""

    rows: list[Row]
    rounds: tuple[ReleasedRound, ...]


class _Ballot:
    """The private rows of one call of `TableEvolution.generate`, which vote; they are read when they first vote."""

    def __init__(self, mechanism: TableEvolution, table: Table, run: Run, source: Source) -> None:
        self.mechanism, self.table, self.run, self.source = mechanism, table, run, source
        self.rounds: list[ReleasedRound] = []
        self._positions: list[Integers] | None = None

    def released(self, number: int, asked: TableRound) -> list[Floats]:
        """The committed votes of a round, or new votes, which are charged before they are drawn.

        Raises:
            RunMismatchError: if the interrupted run's votes are for other candidates.
        """
        event = votes_event(asked.noise_multiplier, self.mechanism.adjacency)
        charge = Charge(key=f"{VOTES}/{number}", stage=VOTES, event=event)
        digest = _candidates_digest(asked)
        value = charged.released_value(self.run, charge, lambda: self._drawn(asked, digest))
        if value["candidates"] != digest:
            raise RunMismatchError(
                "the interrupted run's votes are for other candidates: this machine or its libraries make others of "
                f"the same votes; {charged.ELSEWHERE}"
            )
        votes = np.split(unpacked(value["votes"]), np.cumsum(asked.sizes())[:-1])
        self.rounds.append(ReleasedRound(asked, tuple(votes)))
        return votes

    def _drawn(self, asked: TableRound, digest: str) -> Json:
        if self._positions is None:
            self._positions = positions(self.table.schema, self.table.rows)
        noisy = [
            noisy_votes(exact_votes(asked.candidates, view, self._positions), grid, self.source)
            for view, grid in zip(asked.views, asked.grids(), strict=True)
        ]
        return {"candidates": digest, "votes": packed(np.concatenate(noisy))}


def _candidates_digest(asked: TableRound) -> str:
    """SHA-256 of the candidates and views of a round."""
    result = hashlib.sha256(repr((asked.noise_multiplier, list(asked.views))).encode())
    for item in asked.candidates:
        for array in (item.starts, item.levels):
            result.update(len(array).to_bytes(8, "little") + np.ascontiguousarray(array, dtype="<i8").tobytes())
    return result.hexdigest()


def _rows_at(schema: Schema, columns: list[Integers]) -> list[Row]:
    """Rows in the words of a schema, given the positions of their values."""
    words = []
    for column, values in zip(schema.columns, columns, strict=True):
        known = {
            value: MISSING if value == column.size else column.word_at(value) for value in np.unique(values).tolist()
        }
        words.append([known[value] for value in values.tolist()])
    return list(zip(*words, strict=True))
