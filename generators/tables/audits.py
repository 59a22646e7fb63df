"""What audits of generators of tables share: canaries that fair coins put into the table, and the released rows."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ledger.run_files import prepare
from dpassay.auditing.released.design import TableAuditSettings
from dpassay.auditing.released.run import audit_rows
from dpassay.audits.games.membership_design import MembershipScores
from dpassay.audits.result import AuditResult
from dpassay.base.arrays import Bools
from dpassay.data.table_schema import Row, Schema
from dpassay.data.tables import Table
from dpassay.generators.audits import kept, membership_of_canaries
from dpassay.generators.base import BoundedGuarantee
from dpassay.generators.tables.run import TableRun

FEWEST_CANARIES = 100
"""The number of coins where the schema allows few rows."""

COIN_FILES = {"canaries": "canaries.json", "positive control": "control-canaries.json"}
"""Name of a run of a canary audit → file of its coins."""

LIMIT = 4000
"""The largest number of rows that are compared with synthetic ones, of table and holdout together."""


@dataclass(frozen=True, slots=True)
class RowCoins:
    """Canaries of which fair coins choose.

    Attributes:
        rows: of each coin; whether it is in the data is `included`.
        others: the row that is in the data if a coin is 0; empty if then none is.
        included: shape (m,).
        bare: further coins, which choose no row.
    """

    rows: tuple[Row, ...]
    others: tuple[Row, ...]
    included: Bools
    bare: Bools

    @classmethod
    def kept(cls, path: Path, count: int, adjacency: Adjacency, table: Table, bare: int = 0) -> RowCoins:
        """The coins in a file, which is written first if it is missing; no canary is a row of the table."""

        def draw() -> dict[str, object]:
            drawn = _drawn(2 * count, table)
            many = {"included": count, "spikes": bare}
            coins = {name: [bool(secrets.randbits(1)) for _ in range(tosses)] for name, tosses in many.items()}
            return {"rows": drawn[:count], "others": drawn[count:], **coins}

        body = kept(path, draw)
        rows, others = ([tuple(row) for row in body[name]] for name in ("rows", "others"))
        included, more = (np.array(body[name], dtype=np.bool_) for name in ("included", "spikes"))
        return cls(tuple(rows), tuple(others) if adjacency is Adjacency.REPLACE_ONE else (), included, more)

    def table(self, schema: Schema, *, others: bool = False) -> Table:
        """All canaries, or what is in the data in their place."""
        rows = self.others if others else self.rows
        side = "other" if others else "canary"
        return Table(schema, rows, [f"{side} {index}" for index in range(len(rows))])

    def added(self, table: Table) -> Table:
        """A table with the rows that the coins chose."""
        rows, ids = list(table.rows), list(table.ids)
        for index, coin in enumerate(self.included):
            side = self.table(table.schema, others=not coin) if coin or self.others else None
            if side is not None:
                rows.append(side.rows[index])
                ids.append(side.ids[index])
        return Table(table.schema, rows, ids)


def most_coins(schema: Schema, most: int) -> int:
    """The number of coins: each needs two rows of its own, which are drawn from all that the schema allows."""
    possible = math.prod(column.size + column.missing for column in schema.columns)
    return max(FEWEST_CANARIES, min(most, possible // 20))


def canaries_by_play(
    run: TableRun,
    claimed: BoundedGuarantee,
    folder: Path,
    confidence: float,
    guesses: Sequence[int],
    play: Callable[[str], MembershipScores],
) -> list[AuditResult]:
    """The membership audit of a run with canaries beside its positive control, in a ledger of their own.

    Args:
        run: the claimed run.
        claimed: the claim.
        folder: of the runs; private.
        confidence: with which the bound holds.
        guesses: numbers of guesses, each corrected for.
        play: the scores of a run by its name in `COIN_FILES`.

    Returns:
        One result.
    """
    prepare(folder, run.settings.anchor)
    played, control = (play(name) for name in COIN_FILES)
    numbers = tuple(sorted({min(guess, len(played.included)) for guess in guesses}))
    return [membership_of_canaries(run, claimed.guarantee, played, control, confidence, numbers)]


def _drawn(count: int, table: Table) -> list[Row]:
    """Distinct rows, uniform over the public domains, which are no rows of the table.

    Raises:
        ValueError: if the schema allows too few.
    """
    rng, known = np.random.default_rng(secrets.randbits(128)), set(table.rows)
    results: dict[Row, None] = {}
    for _ in range(100 * count):
        row = table.schema.uniform(rng)
        if row not in known:
            results.setdefault(row)
        if len(results) == count:
            return list(results)
    raise ValueError("canaries: the schema allows too few rows that are not in the table; leave this audit out")


def released(run: TableRun, claimed: BoundedGuarantee, folder: Path, confidence: float) -> list[AuditResult]:
    """The audit of the synthetic table: what it repeats of the table, compared with rows that the run did not read.

    Args:
        run: the claimed run.
        claimed: the claim; no ε follows, since no coins decided which rows the run read.
        folder: unused, since nothing is kept.
        confidence: with which all intervals and p-values hold jointly.

    Returns:
        One result for each attack: equal rows, nearest rows, every second column linked with the others, the
        target column guessed, and rows singled out.
    """
    schema = run.table.schema
    target, holdout = run.claim.target_and_holdout(schema)
    sides = [
        [dict(zip(schema.names, cells, strict=True)) for cells in side]
        for side in (run.documents.rows, map(schema.cells, run.table.rows), map(schema.cells, holdout))
    ]
    settings = TableAuditSettings(
        source=Path("the table"),
        holdout=Path("the holdout"),
        confidence=confidence,
        secrets=(target,),
        link=schema.names[::2] if len(schema.names) > 1 else (),
        limit=LIMIT,
        seed=run.mechanism.seed,
        progress=run.settings.progress,
    )
    return list(audit_rows(Path("the synthetic table"), sides, settings).audits)
