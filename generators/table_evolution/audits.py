"""Audits of private evolution over rows: canaries that fair coins put into the table, and what its output repeats."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from dpassay.accounting.ledger.run_files import prepare
from dpassay.attacks.table_evolution.membership import LINEAR, coin_scores
from dpassay.audits.games.membership_design import MembershipScores
from dpassay.audits.result import AuditResult
from dpassay.base.errors import input_errors
from dpassay.data.table_schema import Schema
from dpassay.data.tables import Table
from dpassay.generators.audits import membership_of_canaries, named_audits
from dpassay.generators.base import BoundedGuarantee
from dpassay.generators.ledger_run import open_audit_run
from dpassay.generators.table_evolution.run import TableEvolutionRun
from dpassay.generators.tables.audits import RowCoins, released
from dpassay.mechanisms.table_evolution.generator import TableEvolution

CANARIES = 400
"""The number of coins of the canary audit, where the schema has rows enough: more of them hide each other."""

FEWEST = 100
"""The same of small schemas."""

GUESSES = (100, 250)
"""Numbers of guesses, each corrected for: few of them cannot show a large ε, whatever they find."""

_FILES = {"canaries": "canaries.json", "positive control": "control-canaries.json"}
"""Name of a run of the canary audit → file of its coins."""


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
    prepare(folder, run.settings.anchor)
    played, control = _play(run, folder, "canaries"), _play(run, folder, "positive control")
    guesses = tuple(sorted({min(guess, len(played.included)) for guess in GUESSES}))
    return [membership_of_canaries(run, claimed.guarantee, played, control, confidence, guesses)]


def _play(run: TableEvolutionRun, folder: Path, name: str) -> MembershipScores:
    """A run with canaries, and the scores of its coins."""
    schema, control = run.table.schema, name != "canaries"
    coins = RowCoins.kept(folder / _FILES[name], _count(schema), run.adjacency, run.table)
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


def _count(schema: Schema) -> int:
    """The number of coins: each needs two rows of its own, which are drawn from all that the schema allows."""
    possible = math.prod(column.size + column.missing for column in schema.columns)
    return max(FEWEST, min(CANARIES, possible // 20))


def _played(mechanism: TableEvolution, *, control: bool) -> TableEvolution:
    """The mechanism whose votes are attacked; its synthetic rows, which are not, need not be many. The positive control
    has no noise."""
    noise = 0.0 if control else mechanism.noise_multiplier
    return dataclasses.replace(mechanism, noise_multiplier=noise, rows=1, generations=1)
