"""Audits of private evolution over rows: canaries that fair coins put into the table, and what its output repeats."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dpassay.attacks.table_evolution.membership import LINEAR, coin_scores
from dpassay.audits.games.membership_design import MembershipScores
from dpassay.audits.result import AuditResult
from dpassay.base.errors import input_errors
from dpassay.data.tables import Table
from dpassay.generators.audits import named_audits
from dpassay.generators.base import BoundedGuarantee
from dpassay.generators.ledger_run import open_audit_run
from dpassay.generators.table_evolution.run import TableEvolutionRun
from dpassay.generators.tables.audits import COIN_FILES, RowCoins, canaries_by_play, most_coins, released
from dpassay.mechanisms.table_evolution.generator import TableEvolution

CANARIES = 400
"""The number of coins of the canary audit, where the schema has rows enough: more of them hide each other."""

GUESSES = (100, 250)
"""Numbers of guesses, each corrected for: few of them cannot show a large ε, whatever they find."""


def audit(run: TableEvolutionRun, claimed: BoundedGuarantee, confidence: float) -> list[AuditResult]:
    """The audits of a finished run that its claim names."""
    with input_errors("audits: "):
        return named_audits(run, claimed, confidence, {"canaries": canaries, "released": released})


def canaries(run: TableEvolutionRun, claimed: BoundedGuarantee, folder: Path, confidence: float) -> list[AuditResult]:
    """The canary audit: fair coins choose canary rows, and the released votes are searched for them.

    Two runs of their own, in a ledger of their own, each with its coins: one with the claimed mechanism, over the
    claim's table and canaries; and the positive control, over canaries alone, without noise. Under replace_one a coin
    chooses between two canaries, under add_remove whether one is in the data.

    Args:
        run: the claimed run.
        claimed: the claim.
        folder: of the runs; private.
        confidence: with which the bound holds.

    Returns:
        One result.
    """
    return canaries_by_play(run, claimed, folder, confidence, GUESSES, lambda name: _play(run, folder, name))


def _play(run: TableEvolutionRun, folder: Path, name: str) -> MembershipScores:
    """A run with canaries, and the scores of its coins."""
    schema, control = run.table.schema, name != "canaries"
    coins = RowCoins.kept(folder / COIN_FILES[name], most_coins(schema, CANARIES), run.adjacency, run.table)
    known = Table(schema, [], []) if control else run.table
    mechanism = _played(run.mechanism, control=control)
    with (
        run.settings.progress.stage(f"Attacking: {name}"),
        open_audit_run(run, folder, name, mechanism, {"mechanism": repr(mechanism)}) as charged,
    ):
        rounds = mechanism.generate(coins.added(known), charged).rounds
    others = coins.table(schema, others=True) if coins.others else None
    scores = coin_scores(rounds, known, coins.table(schema), others)
    return MembershipScores({LINEAR: scores}, coins.included)


def _played(mechanism: TableEvolution, *, control: bool) -> TableEvolution:
    """The mechanism whose votes are attacked; its synthetic rows, which are not, need not be many. The positive control
    has no noise."""
    noise = 0.0 if control else mechanism.noise_multiplier
    return dataclasses.replace(mechanism, noise_multiplier=noise, rows=1, generations=1)
