"""Audits of noisy marginals: canaries that fair coins put into the table, and what synthetic rows repeat."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dpassay.attacks.marginals.membership import LEAST_SQUARES, coin_scores
from dpassay.audits.games.membership_design import MembershipScores
from dpassay.audits.result import AuditResult
from dpassay.base.errors import input_errors
from dpassay.data.tables import Table
from dpassay.generators.audits import named_audits
from dpassay.generators.base import BoundedGuarantee
from dpassay.generators.ledger_run import open_audit_run
from dpassay.generators.marginals.run import MarginalsRun
from dpassay.generators.tables.audits import COIN_FILES, RowCoins, canaries_by_play, most_coins, released
from dpassay.mechanisms.marginals.generator import Marginals
from dpassay.mechanisms.marginals.levels import Levels

CANARIES = 2000
"""The number of coins of the canary audit, where the schema has rows enough."""

GUESSES = (100, 250, 500)
"""Numbers of guesses, each corrected for: few of them cannot show a large ε, whatever they find."""

CONTROL_RHO = 1e6
"""ρ of the positive control, whose counts are exact but with a negligible probability."""

CONTROL_ROUNDS = 2
"""Rounds of the positive control by AIM."""


def audit(run: MarginalsRun, claimed: BoundedGuarantee, confidence: float) -> list[AuditResult]:
    """The audits of a finished run that its claim names."""
    with input_errors("audits: "):
        return named_audits(run, claimed, confidence, {"canaries": canaries, "released": released})


def canaries(run: MarginalsRun, claimed: BoundedGuarantee, folder: Path, confidence: float) -> list[AuditResult]:
    """The canary audit: fair coins choose canary rows, and the released marginals are searched for them.

    Two runs of their own, in a ledger of their own, each with its coins: one with the claimed mechanism, over the
    claim's table and canaries; and the positive control, over canaries alone, without noise to speak of. Under
    replace_one a coin chooses between two canaries, under add_remove whether one is in the data.

    Args:
        run: the claimed run.
        claimed: the claim.
        folder: of the runs; private.
        confidence: with which the bound holds.

    Returns:
        One result.
    """
    return canaries_by_play(run, claimed, folder, confidence, GUESSES, lambda name: _play(run, folder, name))


def _play(run: MarginalsRun, folder: Path, name: str) -> MembershipScores:
    """A run with canaries, and the scores of its coins."""
    schema, control = run.table.schema, name != "canaries"
    coins = RowCoins.kept(folder / COIN_FILES[name], most_coins(schema, CANARIES), run.adjacency, run.table)
    known = Table(schema, [], []) if control else run.table
    mechanism = _control(run.mechanism) if control else run.mechanism
    with (
        run.settings.progress.stage(f"Attacking: {name}"),
        open_audit_run(run, folder, name, mechanism, {"mechanism": repr(mechanism)}) as charged,
    ):
        release = mechanism.generate(coins.added(known), charged)
    levels = Levels(schema, mechanism.bins)
    scores = coin_scores(
        release.marginals,
        levels.sizes,
        levels.of(known.rows),
        levels.of(coins.rows),
        levels.of(coins.others) if coins.others else None,
    )
    return MembershipScores({LEAST_SQUARES: scores}, coins.included)


def _control(mechanism: Marginals) -> Marginals:
    """The same marginals without noise to speak of."""
    return dataclasses.replace(mechanism, rho=CONTROL_RHO, rounds=min(mechanism.rounds, CONTROL_ROUNDS))
