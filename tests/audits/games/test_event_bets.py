"""Bets on several events at a time: no gain under a claim, whatever was seen; and where shares of the wealth go."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from dpassay.attacks.black_box.output_events import REACHED, Event
from dpassay.attacks.black_box.output_features import Features
from dpassay.audits.games.event_bets import EXPECTED_ODDS, MOST_BETS, Bet, choose_bets, log_factors, share_of_expected
from dpassay.base.arrays import Floats

SEEN = Event("seen", 1.0)


def runs(rng: np.random.Generator, size: int, law: Floats, noise: int = 0) -> list[Features]:
    """Features of runs whose outcome, 0, 1 or 2, has this law; `seen`, the number of columns, and noise."""
    results = []
    for value in rng.choice(3, size, p=law).tolist():
        more = {f"noise {index}": float(rng.normal()) for index in range(noise)}
        results.append(features(value) | more)
    return results


def features(value: int) -> dict[str, float]:
    return {"seen": float(value > 0), "second": float(value == 1), REACHED: float(value)}


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.3, 0.0), (1.0, 0.05)])
def test_shares_of_the_wealth_gain_nothing_on_average(epsilon: float, delta: float) -> None:
    """Exact, over all outcomes of a round, at the boundary of (ε, δ)-DP in both directions, for bets that were chosen
    on many different runs, some of all values of a feature."""
    rng, largest, several = np.random.default_rng(0), 0.0, 0
    t, grow = (1 - delta) / (1 + math.exp(epsilon)), math.exp(epsilon)
    low = (1 - delta) / (1 + grow) / 2
    laws = [(t, 0.0, 1 - t), (t, 1 - t, 0.0), (low, low * (1 + grow), delta + grow * low), (1.0, 0.0, 0.0)]
    others = [(1 - t, 0.0, t), (1 - t, t, 0.0), (delta + grow * low, low * (1 + grow), low), (1 - delta, 0.0, delta)]
    expected = {SEEN: 0.3, Event(REACHED, 2.0): 1.0}
    for size in (1, 3, 5, 20):
        for _ in range(12):
            seen = tuple(runs(rng, size, rng.dirichlet(np.ones(3))) for _ in range(2))
            bets = choose_bets((seen[0], seen[1]), expected, epsilon, delta).bets
            several += len(bets) > 1
            assert sum(bet.share for bet in bets) <= 1 + 1e-12
            factors = np.exp(
                [
                    [
                        log_factors(bets, (seen[0], seen[1]), (features(x), features(y)), np.array([epsilon]), delta)[0]
                        for y in range(3)
                    ]
                    for x in range(3)
                ]
            )
            for law, other in zip(laws, others, strict=True):
                for first, second in ((law, other), (other, law)):
                    largest = max(largest, float(np.array(first) @ factors @ np.array(second)))
    assert several > 20
    assert 1 - 1e-6 < largest <= 1 + 1e-9


def test_a_factor_is_the_mean_of_those_of_its_bets() -> None:
    rng = np.random.default_rng(1)
    seen = runs(rng, 9, np.array([0.8, 0.1, 0.1])), runs(rng, 9, np.array([0.1, 0.1, 0.8]))
    new, grid = (features(0), features(2)), np.linspace(0, 2, 5)
    first, second = Bet(SEEN, 1.0), Bet(Event("second", 1.0), 1.0)
    alone = [np.exp(log_factors([bet], seen, new, grid, 0.0)) for bet in (first, second)]
    together = log_factors([Bet(SEEN, 0.5), Bet(second.event, 0.2)], seen, new, grid, 0.0)
    assert np.exp(together) == pytest.approx(0.5 * alone[0] + 0.2 * alone[1] + 0.3)
    assert log_factors([], seen, new, grid, 0.0) == pytest.approx(np.zeros(5))


def test_before_all_runs_only_what_is_expected_is_bet_on_and_nothing_is_won() -> None:
    chosen = choose_bets(([], []), {SEEN: 0.05}, 1.0, 0.0)
    (bet,) = chosen.bets
    assert bet.event == SEEN
    assert bet.share == pytest.approx(0.05 / 1.1, abs=2**-20), "another feature is as likely as what is expected"
    assert chosen.growth > choose_bets(([], []), {}, 1.0, 0.0).growth > 0
    for value in (0, 2):
        factor = log_factors(chosen.bets, ([], []), (features(0), features(value)), np.array([1.0]), 0.0)
        assert factor == pytest.approx(np.zeros(1)), "rates of one half each"
    assert choose_bets(([], []), {}, 1.0, 0.0).bets == ()


def test_what_was_expected_needs_fewer_runs_than_one_of_many_features() -> None:
    rng = np.random.default_rng(2)
    sides = [runs(rng, 4, law, noise=60) for law in (np.array([1.0, 0, 0]), np.array([0, 0, 1.0]))]
    seen = sides[0], sides[1]

    def share(expected: Mapping[Event, float]) -> float:
        bets = choose_bets(seen, expected, 1.0, 0.0).bets
        assert len(bets) <= MOST_BETS
        return sum(bet.share for bet in bets if bet.event.feature == "seen")

    assert share({SEEN: 0.05}) > 4 * share({})


def test_shares_go_to_what_tells_the_data_sets_apart_and_growth_with_it() -> None:
    rng, growth = np.random.default_rng(3), []
    for size in (4, 16, 64):
        seen = runs(rng, size, np.array([0.9, 0.05, 0.05]), 20), runs(rng, size, np.array([0.1, 0.1, 0.8]), 20)
        chosen = choose_bets(seen, {SEEN: 0.05}, 1.0, 0.0)
        growth.append(chosen.growth)
    assert chosen.bets[0].event.feature in ("seen", REACHED)
    assert sum(bet.share for bet in chosen.bets if bet.event.feature in ("seen", REACHED)) > 0.99
    assert growth[0] < growth[-1]
    alike = tuple(runs(rng, 64, np.array([0.3, 0.3, 0.4]), 20) for _ in range(2))
    assert choose_bets((alike[0], alike[1]), {SEEN: 0.05}, 1.0, 0.0).growth < growth[0] / 10


def test_the_share_of_an_expected_event_is_that_of_a_pair_where_nothing_else_differs() -> None:
    for hits in ((0, 4), (1, 3), (2, 2)):
        sides = [[{"seen": float(index < count)} for index in range(4)] for count in hits]
        bets = choose_bets((sides[0], sides[1]), {SEEN: EXPECTED_ODDS}, 1.0, 0.0).bets
        (named,) = share_of_expected(np.array([hits], dtype=np.float64), 4, limit=1.0, delta=0.0)
        found = next(bet.share for bet in bets if bet.event == SEEN)
        others = sum(bet.share for bet in bets) - found  # the same feature is also one of all
        assert found / (1 - others) == pytest.approx(float(named), abs=2e-4), "shares below 1e-4 are not bet"
