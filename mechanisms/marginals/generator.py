"""Synthetic tables from noisy marginals: AIM and MST, by OpenDP.

1. Each column has a public, finite number of levels (`levels`): its categories, or bins of its numbers or dates.
2. OpenDP measures noisy marginals of the levels (`tables`): those of single columns, then those of pairs or more
   columns that it selects, because its model of the table is worst there. AIM selects and fits in turn; MST selects a
   spanning tree of pairs at once. All of this is one ρ-zCDP release.
3. Rows are drawn from the last model, and values within their levels, by a public seed. This is post-processing.

The release is charged before it is drawn, once. If OpenDP ends with an error, that is the outcome of the release: it
stays charged, and the run cannot be resumed.

Proof: docs/proofs/marginals.md.

Source: McKenna, Mullins, Sheldon and Miklau, "AIM: An Adaptive and Iterative Mechanism for Differentially Private
Synthetic Data" (2022); McKenna, Miklau and Sheldon, "Winning the NIST Contest" (2021), for MST.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.entries import Charge, Json
from dpassay.accounting.ledger.run import Run
from dpassay.base import validate
from dpassay.base.errors import DpassayError
from dpassay.data.table_schema import Row, Schema
from dpassay.data.tables import Table
from dpassay.mechanisms.marginals.levels import Levels
from dpassay.mechanisms.marginals.tables import (
    LARGEST_TABLE,
    NoisyMarginal,
    ReleasedTable,
    TableQuery,
    check_libraries,
    check_sizes,
)
from dpassay.mechanisms.primitives import charged
from dpassay.mechanisms.primitives.public_fields import check_adjacency
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY

INPUTS, RELEASE = "inputs", "release"
"""Stages of a run in its ledger."""

_RHO = (1e-6, 1e6)
_FAILED = "failed"


class ReleaseError(DpassayError):
    """The release ended with an error, and is charged. One line, which shows nothing of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginals:
    """The public description of a run: parameters only, which do not depend on the data.

    Attributes:
        rho: ρ of zCDP, which the whole run costs, from 10⁻⁶ to 10⁶.
        method: how marginals are selected: ``aim``, round by round, or ``mst``, a spanning tree of pairs.
        bins: the largest number of levels of a column of numbers or dates, at least 2; missing cells are one more.
        degree: of ``aim``: marginals of up to so many columns are selected.
        rounds: of ``aim``: the budget is cut into so many first parts, each for one marginal.
        model_megabytes: of ``aim``: the largest size of its model.
        rows: the number of synthetic rows.
        seed: of public choices only: which rows are drawn from the model.
        adjacency: add_remove or replace_one.
        unit: record.
    """

    rho: float
    method: Literal["aim", "mst"] = "aim"
    bins: int = 32
    degree: int = 2
    rounds: int = 16
    model_megabytes: float = 20.0
    rows: int = 1000
    seed: int = 0
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)

    def __post_init__(self) -> None:
        if not _RHO[0] <= validate.positive(rho=self.rho) <= _RHO[1]:
            raise ValueError(f"rho must be from {_RHO[0]:.0e} to {_RHO[1]:.0e}, not {self.rho!r}")
        validate.one_of(("aim", "mst"), method=self.method)
        validate.integer(minimum=2, bins=self.bins)
        for name in ("degree", "rounds", "rows"):
            validate.integer(minimum=1, **{name: getattr(self, name)})
        if self.rounds > 1000:
            raise ValueError(f"rounds must be at most 1000, not {self.rounds}")
        validate.positive(model_megabytes=self.model_megabytes)
        validate.integer(minimum=0, seed=self.seed)
        check_adjacency(self.adjacency)
        if self.unit != Unit():
            raise ValueError(f"unit must be record for marginals, not {str(self.unit)!r}: each row counts once")

    @property
    def releasable(self) -> bool:
        """Whether the output of a run is protected, and the accounting covers the algorithm as it runs."""
        return True

    @property
    def contributions(self) -> int:
        """The number of rows in which neighbours differ, as OpenDP counts: a replaced row is one less and one more."""
        return 2 if self.adjacency is Adjacency.REPLACE_ONE else 1

    @property
    def width(self) -> int:
        """The largest number of columns of a marginal."""
        return self.degree if self.method == "aim" else 2

    def release_event(self) -> DpEvent:
        """The event of the release, at the adjacency of the mechanism."""
        return dp_event.ZCDpEvent(self.rho)

    def plan(self) -> DpEvent:
        """The event that a whole run charges, in the ledger's canonical form; known before any data are read."""
        return events.compose([(self.release_event(), 1)])

    def check(self, schema: Schema) -> None:
        """Checks that tables of a schema can be released.

        Raises:
            ValueError: one line, if the schema is too large or too small, or a library is missing.
        """
        check_sizes(self, Levels(schema, self.bins).sizes)
        check_libraries()

    def generate(self, table: Table, run: Run) -> MarginalRelease:
        """Releases marginals and rows, or resumes an interrupted run.

        What was drawn before an interruption, and not committed, has left the process in no way; it is drawn anew under
        the same charge. What was committed is used again.

        Args:
            table: private.
            run: of a ledger, begun with `plan()`. The release is charged before it is drawn, and committed; the caller
                finishes the run.

        Raises:
            ValueError: if the schema cannot be counted.
            RunMismatchError: if the interrupted run had another table or other parameters.
            ReleaseError: if the release ended with an error, now or before the interruption.
        """
        charged.check_run(run, self.plan(), OS_ENTROPY)
        if len(table.rows) > LARGEST_TABLE:
            raise ValueError(f"a table has at most {LARGEST_TABLE} rows for mechanism marginals")
        levels = Levels(table.schema, self.bins)
        query = None if run.outcome(RELEASE) else TableQuery(self, levels.sizes, levels.of(table.rows))
        charged.note(run, INPUTS, self._digest(table), charged.other_inputs("rows, another schema or parameters"))
        value = self._released(run, query)
        if _FAILED in value:
            raise ReleaseError(
                f"the release ended with an error of OpenDP or mbi ({value[_FAILED]}), and is charged; a new run in a "
                "new folder is charged as well"
            )
        released = _from_json(value)
        rows = levels.rows(released.levels, np.random.default_rng([self.seed, 1]))
        return MarginalRelease(released.marginals, tuple(rows), released.libraries)

    def _released(self, run: Run, query: TableQuery | None) -> Mapping[str, Any]:
        """The committed value of the release; if there is none, it is charged and drawn."""
        charge = Charge(key=RELEASE, stage=RELEASE, event=self.release_event())
        known = run.outcome(RELEASE)
        if known is None:
            assert query is not None
            run.step(charge=charge)
            try:
                value = _to_json(query.release())
            except Exception as error:  # whatever it is, it is what the charged release came to
                value = {_FAILED: type(error).__name__}
            known = charged.commit(run, charge, value)
        result: Mapping[str, Any] = known.value
        return result

    def _digest(self, table: Table) -> str:
        """SHA-256 of everything that determines a run; private."""
        public = repr((self, table.schema.model_dump_json()))
        digest = hashlib.sha256(public.encode("utf-8", "surrogatepass"))
        for row, name in zip(table.rows, table.ids, strict=True):
            digest.update(hashlib.sha256(repr((name, row)).encode("utf-8", "surrogatepass")).digest())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class MarginalRelease:
    """A finished run; all of it may be released.

    Attributes:
        marginals: the noisy marginals.
        rows: synthetic rows.
        libraries: versions of OpenDP and mbi, by name.
    """

    marginals: tuple[NoisyMarginal, ...]
    rows: tuple[Row, ...]
    libraries: Mapping[str, str]


def _to_json(released: ReleasedTable) -> dict[str, Json]:
    marginals: list[Json] = [
        {"columns": [*item.columns], "sigma": item.sigma, "counts": [*item.counts]} for item in released.marginals
    ]
    levels: list[Json] = [[*own.tolist()] for own in released.levels]
    libraries: dict[str, Json] = dict(released.libraries)
    return {"marginals": marginals, "levels": levels, "libraries": libraries}


def _from_json(value: Mapping[str, Any]) -> ReleasedTable:
    marginals = tuple(
        NoisyMarginal(tuple(item["columns"]), item["sigma"], tuple(item["counts"])) for item in value["marginals"]
    )
    levels = tuple(np.array(own, dtype=np.int64) for own in value["levels"])
    return ReleasedTable(marginals, levels, value["libraries"])
