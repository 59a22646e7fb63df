"""Audits of two-stage fine-tuning: canaries that fair coins put into the table, and what synthetic rows repeat."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from dpassay.accounting.ledger.run_files import prepare
from dpassay.attacks.two_stage.membership import (
    LIKELIHOOD,
    NEAREST,
    SPIKES,
    SpikeScores,
    distances,
    log_likelihoods,
)
from dpassay.audits.games.membership_design import MembershipScores
from dpassay.audits.result import AuditResult
from dpassay.base.arrays import Floats
from dpassay.base.errors import input_errors
from dpassay.data.table_schema import Row
from dpassay.data.tables import Table
from dpassay.generators.audits import membership_of_canaries, named_audits
from dpassay.generators.base import BoundedGuarantee
from dpassay.generators.ledger_run import open_audit_run
from dpassay.generators.tables.audits import COIN_FILES, RowCoins, released
from dpassay.generators.two_stage.run import TwoStageRun
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.two_stage.generator import TwoStage
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


def _play(run: TwoStageRun, folder: Path, name: str) -> tuple[MembershipScores, MembershipScores]:
    """A run with canaries, and the scores of its coins: of spikes, and of rows."""
    schema = run.table.schema
    coins = RowCoins.kept(folder / COIN_FILES[name], CANARIES, run.adjacency, run.table, bare=SPIKE_COINS)
    control = name != "canaries"
    table = coins.added(Table(schema, [], []) if control else run.table)
    spikes, swapped = _signs(coins), bool(coins.others)
    present = len(table.rows) + int(np.count_nonzero(spikes.signs))
    mechanism = _control(run.mechanism, present) if control else _with_canaries(run.mechanism, present)
    observer = SpikeScores(len(coins.bare), swapped=swapped)
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
    return MembershipScores({SPIKES: observer.scores}, coins.bare), MembershipScores(results, coins.included)


def _signs(coins: RowCoins) -> Spikes:
    """The spikes that coins without rows chose; under replace_one a coin chooses the sign."""
    return Spikes(tuple(1 if coin else -1 if coins.others else 0 for coin in coins.bare))


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
