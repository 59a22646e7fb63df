"""Betting: coverage at every time on boundary mechanisms, power, and a state that survives."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpassay.audits.statistics.sequential import Sequential, Wealth

BETA = 0.1


def play(audit: Sequential, rounds: int, p: float, q: float, generator: np.random.Generator) -> list[float]:
    """The bound after each round, the event having probability p on D and q on D′."""
    seen = []
    for on_d, on_d_prime in zip(generator.random(rounds) < p, generator.random(rounds) < q, strict=True):
        audit.update(bool(on_d), bool(on_d_prime))
        seen.append(audit.epsilon)
    return seen


@pytest.mark.grid
@pytest.mark.parametrize(
    ("p", "q", "epsilon", "delta"),
    [
        (math.e / (1 + math.e), 1 / (1 + math.e), 1.0, 0.0),  # randomised response
        (1 / (1 + math.e), math.e / (1 + math.e), 1.0, 0.0),  # and with D and D′ exchanged
        (0.5, 0.5, 0.0, 0.0),
        (0.05, 0.0, 0.0, 0.05),  # what δ alone allows
        (float(stats.norm.sf(0.5)), float(stats.norm.sf(1.5)), 1.0, None),  # Gaussian μ = 1, its best event at ε = 1
    ],
)
def test_the_bound_is_beyond_the_truth_at_some_time_with_at_most_the_stated_probability(
    p: float, q: float, epsilon: float, delta: float | None
) -> None:
    """2000 audits of 150 rounds, looked at after each; a valid one fails this with probability below 1e-4."""
    delta, step = p - math.e * q if delta is None else delta, 0.25
    many = Wealth(np.arange(0, 3.1, step), delta, (2000,))
    hits = np.random.default_rng(3).random((150, 2, 2000)) < np.array([p, q])[:, None]
    for on_d, on_d_prime in hits:
        many.update(on_d, on_d_prime)
    # Wealth is kept at its largest, so the last look shows what any look showed.
    alarms = int(((many.rejected(1 - BETA) - 1) * step > epsilon).sum())
    assert alarms <= stats.binom.isf(1e-4, 2000, BETA)
    item = Sequential(delta=delta, confidence=1 - BETA, largest=3.0, step=step)
    item.update_all((bool(round_[0, 7]), bool(round_[1, 7])) for round_ in hits)
    assert item.epsilon == max(0, int(many.rejected(1 - BETA)[7]) - 1) * step


def test_the_bound_never_falls_and_finds_most_of_epsilon() -> None:
    q = 1 / (1 + math.exp(2))
    seen = play(Sequential(delta=0.0, confidence=0.95), 3000, 1 - q, q, np.random.default_rng(1))
    assert seen == sorted(seen)
    assert 1.5 < seen[-1] <= 2.0


def test_what_is_rejected_beyond_a_kept_epsilon_does_not_count() -> None:
    """Only the first ε at or above the truth has an error probability of β; one of those above it may be rejected."""
    wealth = Wealth(np.array([0.0, 0.1, 0.2, 0.3]), 0.0)
    for best, rejected in (([9.0, 9.0, 0.0, 9.0], 2), ([0.0, 9.0, 9.0, 9.0], 0), ([9.0] * 4, 4)):
        wealth.best = np.array(best)
        assert wealth.rejected(0.95) == rejected


def test_the_ceiling_is_what_perfect_guesses_reach() -> None:
    audit = Sequential(delta=0.0, confidence=0.95)
    audit.update_all([(True, False)] * 50)
    bound = audit.bound()
    assert bound.value == bound.ceiling
    assert bound.value > 1.5


def test_other_bets_gain_no_more_than_the_ceiling() -> None:
    """Factors that are larger than a bet on an event could be are cut, so that the ceiling holds whatever they are."""
    state = Sequential(delta=0.0, confidence=0.95)
    for _ in range(40):
        state.bet(np.full(state.grid.size, 5.0))
    assert state.epsilon == state.ceiling(40) < 4
    lost = Sequential(delta=0.0, confidence=0.95)
    lost.bet(np.full(lost.grid.size, -5.0))
    assert lost.wealth.logs == pytest.approx(-5.0)
    assert lost.rounds == 1


@pytest.mark.slow
def test_bounds_and_ceilings_are_decimals_of_the_step() -> None:
    """Multiples of 0.01 in floating point print as 1.89001 when they are rounded up."""
    state = Sequential(delta=0.0, confidence=0.95)
    ceilings = [state.ceiling(rounds) for rounds in range(1, 91)]
    assert ceilings == [round(ceiling, 2) for ceiling in ceilings]
    assert len(set(ceilings)) > 80
    state.update_all([(True, False)] * 90)
    assert state.epsilon == ceilings[-1]
    fine = Sequential(delta=0.0, confidence=0.95, largest=1e-8, step=1e-14)
    fine.update_all([(True, False)] * 90)
    assert fine.epsilon == 1e-8


def test_a_saved_state_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    rounds = (np.random.default_rng(4).random((60, 2)) < [0.8, 0.3]).tolist()
    whole = Sequential(delta=1e-3, confidence=0.9, earlier=9, adjacency="replace_one")
    whole.expect((2, 9), (7, 9))
    whole.update_all(rounds)
    part = Sequential(delta=1e-3, confidence=0.9, earlier=9, adjacency="replace_one")
    part.expect((2, 9), (7, 9))
    part.update_all(rounds[:25])
    part.save(tmp_path / "audit.json")
    resumed = Sequential.load(tmp_path / "audit.json")
    resumed.update_all(rounds[25:])
    assert resumed.bound() == whole.bound()
    assert [path.name for path in tmp_path.iterdir()] == ["audit.json"]


OUT_OF_RANGE = (
    '{"version": 2, "delta": 2, "confidence": 0.9, "largest": 1, "step": 0.5, "earlier": 0, "adjacency": "add_remove"}'
)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"version": 2}', "\x00", OUT_OF_RANGE])
def test_a_file_without_a_state_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(ValueError, match="not the saved state of a sequential audit") as error:
        Sequential.load(tmp_path / "bad.json")
    assert "\n" not in str(error.value)


def test_a_state_that_saw_more_runs_than_there_were_is_refused(tmp_path: Path) -> None:
    """Its ceiling would be too small."""
    audit = Sequential(delta=0.0, confidence=0.9, earlier=5)
    audit.expect((0, 5), (5, 5))
    audit.update(False, True)
    path = tmp_path / "audit.json"
    audit.save(path)
    assert Sequential.load(path).bound() == audit.bound()
    whole = path.read_text()
    for old, new in (
        ('"earlier": 5', '"earlier": 4'),
        ('"hits": [0.0, 6.0]', '"hits": [0.0, 7.0]'),
        ('"hits": [0.0, 6.0]', '"hits": [-1.0, 6.0]'),
        ('"logs": [', '"logs": [Infinity, '),
        ('"best": [', '"best": [-1, '),
    ):
        assert old in whole
        forged = json.loads(whole.replace(old, new))
        forged.update({name: forged[name][:1601] for name in ("logs", "best")})
        path.write_text(json.dumps(forged))
        with pytest.raises(ValueError, match="not the saved state of a sequential audit"):
            Sequential.load(path)


@pytest.mark.parametrize("told", [((0, 6), (5, 6)), ((3, 2), (1, 2)), ((-1, 2), (1, 2))])
def test_impossible_earlier_runs_are_refused(told: tuple[tuple[int, int], tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="happened in at most all of 5 runs"):
        Sequential(delta=0.0, confidence=0.9, earlier=5).expect(*told)


def test_earlier_runs_set_the_stakes_and_are_not_counted() -> None:
    """Before the first round nothing is shown; then well-informed rounds show more than others, up to the ceiling."""
    informed, other = (Sequential(delta=0.0, confidence=0.95, earlier=30) for _ in range(2))
    informed.expect((0, 30), (30, 30))
    assert informed.epsilon == 0
    for audit in (informed, other):
        audit.update_all([(False, True)] * 12)
    assert informed.epsilon == informed.ceiling(12) > other.epsilon > 1
    misled = Sequential(delta=0.0, confidence=0.95, earlier=30)
    misled.expect((30, 30), (0, 30))
    misled.update_all([(False, True)] * 12)
    assert misled.epsilon == 0


def test_more_runs_than_the_proof_covers_are_refused() -> None:
    with pytest.raises(ValueError, match="earlier must be at most 1000000"):
        Sequential(delta=0.0, confidence=0.9, earlier=10**6 + 1)
    fine = Sequential(delta=0.0, confidence=0.9, earlier=10**6, largest=4.0, step=5e-6)
    fine.expect((0, 10**6), (10**6, 10**6))
    fine.update_all([(False, True)] * 10)
    assert 2 < fine.epsilon <= fine.ceiling(10)


def test_impossible_settings_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"delta": 1.0},
        {"confidence": 0.0},
        {"step": 0.0},
        {"largest": 100.0},
        {"largest": 0.1, "step": 1},
    ]
    for settings in wrong:
        with pytest.raises(ValueError, match=r"must|needs"):
            Sequential(**({"delta": 0.0, "confidence": 0.95} | settings))
