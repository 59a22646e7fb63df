"""Votes of rows for candidates get half of the noise that the run is charged for."""

from __future__ import annotations

import functools
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from exhibits import Exhibit, at_least, claimed, on_the_page, verdict

from dpassay.accounting import Adjacency, ApproxDP, account
from dpassay.accounting.bounds import Bound
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.attacks.table_evolution.membership import LINEAR, coin_scores
from dpassay.audits.games.membership import membership_audit
from dpassay.audits.games.membership_design import MembershipDesign, MembershipScores
from dpassay.base.arrays import Floats, Integers
from dpassay.data.table_schema import Schema
from dpassay.data.tables import Table
from dpassay.mechanisms.primitives.randomness import Recorded, Source
from dpassay.mechanisms.table_evolution import generator
from dpassay.mechanisms.table_evolution.generator import TableEvolution
from dpassay.mechanisms.table_evolution.votes import VotesGrid, noisy_votes

COINS = 5000
SCHEMA = Schema.model_validate(
    {"columns": [{"name": "x", "type": "category", "values": [f"v{index}" for index in range(2 * COINS)]}]}
)
"""Each canary has a value of its own, and every second value is of none."""

MECHANISM = TableEvolution(noise_multiplier=1.0, records=COINS // 2, rows=1, rounds=1, generations=1)
DELTA = 3e-4


def claim() -> ApproxDP:
    """What is proven of the mechanism, rounded up to a hundredth."""
    bound = account(MECHANISM.plan(), adjacency=Adjacency.ADD_REMOVE, delta=DELTA)
    return ApproxDP(math.ceil(100 * bound.value) / 100, DELTA)


def halved(exact: Integers, grid: VotesGrid, source: Source) -> Floats:
    """The votes with half of the noise."""
    return (noisy_votes(exact, grid, source) + exact) / 2


@functools.cache
def played(*, bug: bool) -> Bound:
    """What canaries of which fair coins chose show of a run."""
    included = np.random.default_rng(1).integers(2, size=COINS).astype(np.bool_)
    rows = [(f"v{2 * index}",) for index in range(COINS)]
    chosen = [row for row, coin in zip(rows, included, strict=True) if coin]
    canaries = Table(SCHEMA, rows, [row[0] for row in rows])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if bug:
            patch.setattr(generator, "noisy_votes", halved)
        with Ledger.open(Path(folder) / "ledger.sqlite", anchor=Path(folder) / "anchor") as ledger:
            run = ledger.begin(
                "run",
                plan=MECHANISM.plan(),
                adjacency=MECHANISM.adjacency,
                unit=MECHANISM.unit,
                about={"noise": "recorded"},
            )
            table = Table(SCHEMA, chosen, [row[0] for row in chosen])
            rounds = MECHANISM.generate(table, run, source=Recorded(2)).rounds
            run.finish()
    scores = coin_scores(rounds, Table(SCHEMA, [], []), canaries)
    design = MembershipDesign(guesses=(COINS // 20,), fair_coins=True, delta=DELTA, confidence=0.95)
    return membership_audit(MembershipScores({LINEAR: scores}, included), design).bounds[0]


def test_canaries_in_one_run_refute_it() -> None:
    """With the noise that is charged, the bound stays below what is proven."""
    assert verdict(claim(), played(bug=True)) == "REFUTED"
    assert verdict(claim(), played(bug=False)) == "UNPROVEN"


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "votes of a table's rows with half of the noise that is charged",
        "no single source: a standard deviation that is taken for a variance, or the other way round",
        "canaries that fair coins put into one run",
        claimed(claim()),
        at_least(played(bug=True)),
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
