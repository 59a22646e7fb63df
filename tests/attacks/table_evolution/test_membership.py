"""Scores of canaries by the votes of all rounds: against dense linear algebra, and what they find with and without
noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from little_tables import PEOPLE, people

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.attacks.table_evolution import membership
from dpassay.attacks.table_evolution.membership import coin_scores
from dpassay.base.arrays import Bools
from dpassay.data.table_schema import Row
from dpassay.data.tables import Table
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.table_evolution.candidates import positions
from dpassay.mechanisms.table_evolution.generator import ReleasedRound, TableEvolution


def uniform(count: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [PEOPLE.uniform(rng) for _ in range(count)]


def table(rows: list[Row]) -> Table:
    return Table(PEOPLE, rows, [str(index) for index in range(len(rows))])


def released(rows: list[Row], noise: float, folder: Path) -> tuple[ReleasedRound, ...]:
    mechanism = TableEvolution(noise_multiplier=noise, records=100, rows=1, generations=1)
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        about: dict[str, Any] = {"noise": "recorded"}
        run = ledger.begin(
            "run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about=about
        )
        return mechanism.generate(table(rows), run, source=Recorded(5)).rounds


def coins_and_scores(
    folder: Path, noise: float, count: int, *, swapped: bool
) -> tuple[Bools, np.ndarray, tuple[ReleasedRound, ...], list[list[Row]]]:
    known, ones, zeros = people(60), uniform(count, 1), uniform(count, 2)
    coins = np.random.default_rng(3).random(count) < 0.5
    chosen = [one if coin else zero for coin, one, zero in zip(coins, ones, zeros, strict=True) if coin or swapped]
    rounds = released(known + chosen, noise, folder)
    scores = coin_scores(rounds, table(known), table(ones), table(zeros) if swapped else None)
    return coins, scores, rounds, [known, ones, zeros]


@pytest.mark.parametrize("swapped", [False, True])
def test_scores_are_the_best_linear_guess(swapped: bool, tmp_path: Path) -> None:
    """Against a dense solution of the same problem: coins with mean ½ and variance ¼, and sums of them with noise, of
    the size that candidates without canaries show, at most that stated. The design matrix is built from words, one
    canary, view and candidate after the other."""
    _, scores, rounds, (known, ones, zeros) = coins_and_scores(tmp_path, 0.4, 12, swapped=swapped)
    design, seen = [], []
    for item in rounds:
        for view, votes, grid in zip(item.asked.views, item.votes, item.asked.grids(), strict=True):
            rows = np.zeros((len(votes), 12))
            rest = votes.copy()
            sides = [(known, 0.0), (ones, 1.0), *([(zeros, -1.0)] if swapped else [])]
            for side, sign in sides:
                places = positions(PEOPLE, side)
                for index in range(len(side)):
                    cell = 0
                    for column in view.columns:
                        candidates = item.asked.candidates[column]
                        part = max(np.flatnonzero(candidates.starts <= places[column][index]))
                        cell = cell * candidates.count + int(candidates.levels[part])
                    if sign:
                        rows[cell, index] += sign
                    rest[cell] -= 0.5 if sign else 1.0
            design.append(rows / grid.deviation)
            seen.append(rest / grid.deviation)
    matrix, right = np.vstack(design), np.concatenate(seen)
    bare = right[~matrix.any(axis=1)]  # candidates for which no canary votes show how large the noise is
    assert len(bare) >= 100
    precision = 1 / min(1.0, float(np.square(bare).mean()))
    wanted = np.linalg.solve(precision * matrix.T @ matrix + 4 * np.eye(12), precision * matrix.T @ right)
    assert np.abs(scores - wanted).max() < 1e-4


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_noise_that_there_is_is_seen(share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From some hundred votes without canaries: their deviation errs by less than a fifth, which is six of its own."""
    drawn, seen = Recorded.rounded_normals, list[float]()
    monkeypatch.setattr(Recorded, "rounded_normals", lambda *given: (drawn(*given) * share).astype(np.int64))
    scale = membership._noise_scale

    def kept(sums: Any) -> float:
        seen.append(scale(sums))
        return seen[-1]

    monkeypatch.setattr(membership, "_noise_scale", kept)
    coins_and_scores(tmp_path, 2.0, 12, swapped=False)
    assert 0.8 * share < seen[0] < min(1.0, 1.2 * share) + 1e-12


@pytest.mark.parametrize("swapped", [False, True])
def test_without_noise_every_coin_is_found(swapped: bool, tmp_path: Path) -> None:
    """60 canaries, of which many share candidates in each view."""
    coins, scores, _, _ = coins_and_scores(tmp_path, 0.0, 60, swapped=swapped)
    assert ((scores > 0) == coins).all()


def test_with_much_noise_nothing_is_found(tmp_path: Path) -> None:
    """At μ = .05 a coin is guessed right with probability .51; 70 of 100 or more have probability 10⁻⁴."""
    coins, scores, _, _ = coins_and_scores(tmp_path, 20.0, 100, swapped=False)
    assert ((scores > 0) == coins).sum() < 70
