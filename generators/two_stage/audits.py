"""Audits of two-stage fine-tuning: canaries that fair coins put into the table, and what synthetic rows repeat."""

from __future__ import annotations

import dataclasses
import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ledger.run_files import prepare
from dpassay.attacks.two_stage.membership import (
    LIKELIHOOD,
    NEAREST,
    SPIKES,
    SpikeScores,
    distances,
    log_likelihoods,
)
from dpassay.auditing.released.design import TableAuditSettings
from dpassay.auditing.released.run import audit_rows
from dpassay.audits.games.membership_design import MembershipScores
from dpassay.audits.result import AuditResult
from dpassay.base.arrays import Bools, Floats
from dpassay.base.errors import input_errors
from dpassay.data.table_schema import Row, Schema
from dpassay.generators.audits import kept, membership_of_canaries, named_audits
from dpassay.generators.base import BoundedGuarantee
from dpassay.generators.ledger_run import open_audit_run
from dpassay.generators.two_stage.run import TwoStageRun
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.two_stage.generator import Table, TwoStage
from dpassay.mechanisms.two_stage.sampling import RowSampler, sampled_rows
from dpassay.mechanisms.two_stage.training import Spikes, TwoStageTraining

CANARIES = 100
"""The number of coins of the canary audit that choose rows."""

SPIKE_COINS = 1000
"""The number of its coins that choose spikes."""

GUESSES = (100, 250, 500)
"""Numbers of guesses about spikes, each corrected for: few of them cannot show a large ε, whatever they find."""

CONTROL_STEPS = 60
"""The number of steps of the positive control, all of which see all canaries."""

ROWS = 256
"""The number of synthetic rows that are compared with canaries."""

LIMIT = 4000
"""The largest number of rows that are compared with synthetic ones, of table and holdout together."""

_FILES = {"canaries": "canaries.json", "positive control": "control-canaries.json"}
"""Name of a run of the canary audit → file of its coins."""


@dataclass(frozen=True, slots=True)
class RowCoins:
    """Canaries of which fair coins choose.

    Attributes:
        rows: of each coin; whether it is in the data is `included`.
        others: the row that is in the data if a coin is 0; empty if then none is.
        included: shape (m,).
        spikes: likewise, for spikes, whose sign is exchanged if rows are.
    """

    rows: tuple[Row, ...]
    others: tuple[Row, ...]
    included: Bools
    spikes: Bools

    @classmethod
    def kept(cls, path: Path, count: int, adjacency: Adjacency, table: Table) -> RowCoins:
        """The coins in a file, which is written first if it is missing; no canary is a row of the table."""

        def draw() -> dict[str, object]:
            drawn = _drawn(2 * count, table)
            many = {"included": count, "spikes": SPIKE_COINS}
            coins = {name: [bool(secrets.randbits(1)) for _ in range(tosses)] for name, tosses in many.items()}
            return {"rows": drawn[:count], "others": drawn[count:], **coins}

        body = kept(path, draw)
        rows, others = ([tuple(row) for row in body[name]] for name in ("rows", "others"))
        included, spikes = (np.array(body[name], dtype=np.bool_) for name in ("included", "spikes"))
        return cls(tuple(rows), tuple(others) if adjacency is Adjacency.REPLACE_ONE else (), included, spikes)

    @property
    def signs(self) -> Spikes:
        """The spikes that the coins chose."""
        return Spikes(tuple(1 if coin else -1 if self.others else 0 for coin in self.spikes))

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


def audit(run: TwoStageRun, claimed: BoundedGuarantee, confidence: float) -> list[AuditResult]:
    """The audits of a finished run that its claim names."""
    with input_errors("audits: "):
        return named_audits(run, claimed, confidence, {"canaries": canaries, "released": released})


def canaries(run: TwoStageRun, claimed: BoundedGuarantee, folder: Path, confidence: float) -> list[AuditResult]:
    """The canary audit: fair coins choose spikes and canary rows; gradients, model and synthetic rows are searched.

    Two runs of their own, in a ledger of their own, each with its coins: one with the claimed mechanism, over the
    claim's table and canaries; and the positive control, over canaries alone, without noise. Under replace_one a coin
    chooses between two canaries, under add_remove whether one is in the data.

    Spikes are added to the sum of clipped gradients. They show noise that is too small, a wrong sampling rate or a step
    that is not charged; they cannot show a gradient that is clipped wrongly or depends on other rows.

    Args:
        run: the claimed run.
        claimed: the claim.
        folder: of the runs; private.
        confidence: with which the bounds of both results hold jointly.

    Returns:
        One result for spikes, one for rows.
    """
    prepare(folder, run.settings.anchor)
    played = _play(run, folder, "canaries")
    control = _play(run, folder, "positive control")
    guesses = tuple(sorted({min(guess, len(played[0].included)) for guess in GUESSES}))
    return [
        membership_of_canaries(run, claimed.guarantee, own, known, 1 - (1 - confidence) / 2, of_these)
        for own, known, of_these in zip(played, control, (guesses, ()), strict=True)
    ]


def released(run: TwoStageRun, claimed: BoundedGuarantee, folder: Path, confidence: float) -> list[AuditResult]:
    """The audit of the synthetic table: what it repeats of the table, compared with rows that the run did not read.

    Args:
        run: the claimed run.
        claimed: the claim; no ε follows, since no coins decided which rows the run read.
        folder: unused, since nothing is kept.
        confidence: with which all intervals and p-values hold jointly.

    Returns:
        One result for each attack: equal rows, nearest rows, the target column guessed, and rows singled out.
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
        secret=target,
        limit=LIMIT,
        seed=run.mechanism.seed,
        progress=run.settings.progress,
    )
    return list(audit_rows(Path("the synthetic table"), sides, settings).audits)


def _play(run: TwoStageRun, folder: Path, name: str) -> tuple[MembershipScores, MembershipScores]:
    """A run with canaries, and the scores of its coins: of spikes, and of rows."""
    coins, schema = RowCoins.kept(folder / _FILES[name], CANARIES, run.adjacency, run.table), run.table.schema
    control = name != "canaries"
    table = coins.added(Table(schema, [], []) if control else run.table)
    spikes, swapped = coins.signs, bool(coins.others)
    present = len(table.rows) + int(np.count_nonzero(spikes.signs))
    mechanism = _control(run.mechanism, present) if control else _with_canaries(run.mechanism, present)
    observer = SpikeScores(len(coins.spikes), swapped=swapped)
    own = folder / name.replace(" ", "-")
    own.mkdir(mode=0o700, exist_ok=True)
    training = TwoStageTraining(
        mechanism,
        run.model,
        table,
        own,
        public=run.public,
        first=own if control else run.checkpoints,
        observer=observer,
        spikes=spikes,
        rows=max(1, len(table.rows)) if control else None,
    )
    about = {"mechanism": repr(mechanism), "model": run.model.fingerprint}
    with (
        run.settings.progress.stage(f"Attacking: {name}") as step,
        open_audit_run(run, folder, name, mechanism, about) as charged,
    ):
        trained = training.run(charged, step)
    settings = run.claim.parameters.generation
    sampler = RowSampler(seed=mechanism.seed, temperature=settings.temperature, rounds=settings.rounds)
    synthetic = list(sampled_rows(trained.model, training.tokens, sampler, range(ROWS)))
    sides = [coins.rows, coins.others] if swapped else [coins.rows]
    results: dict[str, Floats] = {}
    for attack, values in (
        (LIKELIHOOD, [_gain(run, trained.model, side) for side in sides]),
        (NEAREST, [-distances(side, synthetic, schema) for side in sides]),
    ):
        results[attack] = values[0] - values[1] if swapped else values[0]
    return MembershipScores({SPIKES: observer.scores}, coins.spikes), MembershipScores(results, coins.included)


def _gain(run: TwoStageRun, model: LanguageModel, rows: tuple[Row, ...]) -> Floats:
    """The log-likelihood of rows under a model, less that under the claimed run's, which saw no canary."""
    return log_likelihoods(model, run.tokens, rows) - log_likelihoods(run.trained.model, run.tokens, rows)


def _with_canaries(mechanism: TwoStage, present: int) -> TwoStage:
    """The mechanism over a table with canaries, with the rate of the claim, which follows from its public number."""
    return mechanism if mechanism.sampling == "poisson" else dataclasses.replace(mechanism, records=present)


def _control(mechanism: TwoStage, present: int) -> TwoStage:
    """Training without noise on canaries alone, all of them in each step."""
    return dataclasses.replace(
        mechanism,
        noise_multiplier=0.0,
        records=present,
        batch_size=present,
        steps=CONTROL_STEPS,
        first_stage="none",
        sampling="poisson",
    )
