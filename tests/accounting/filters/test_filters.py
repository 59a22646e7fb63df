"""Filters hold against every adversary that a small world allows, and rules that are no filters fail in the same world.

The world: mechanisms with two to four outcomes and known laws P and Q, run one after another, each picked from the
outcomes so far. The largest δ(ε) = Σ max(P − e^ε Q, 0) over all ways to pick and to stop is computed exactly, by
dynamic programming over (how often each mechanism gave each outcome): the rest of an interaction depends on its past
only through these counts.
"""

from __future__ import annotations

import copy
import functools
import math
import pickle
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import DpEvent, dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting import (
    GDP,
    RDP,
    ZCDP,
    ApproxDP,
    ExPostDP,
    Guarantee,
    PrivacyProfile,
    PureDP,
    Rigor,
    SecretProtection,
    Unit,
    accountant,
)
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, ExPostSelectionDpEvent, ParallelDpEvent
from dpassay.accounting.ex_post import costs
from dpassay.accounting.filters.adaptive import BudgetExhausted, Meter, Spend, Total, equal_weights, stopped_epsilon
from dpassay.accounting.filters.filter import Filter, order_for
from dpassay.accounting.ledger.ledger import Ledger

# Sums of at most a few thousand products of at most ten factors, each with relative error 1e-16.
EXACT = 1 + 1e-11


@dataclass(frozen=True)
class Mechanism:
    """Outcome probabilities under both neighbours, and what a filter is told."""

    p: tuple[float, ...]
    q: tuple[float, ...]
    cost: Guarantee

    @property
    def swapped(self) -> Mechanism:
        return Mechanism(self.q, self.p, self.cost)


def response(epsilon: float, cost: Guarantee | None = None) -> Mechanism:
    """Randomised response: every ε-DP pair is a post-processing of it."""
    high = 1 / (1 + math.exp(-epsilon))
    return Mechanism((high, 1 - high), (1 - high, high), cost or PureDP(epsilon))


def leaky(epsilon: float, delta: float) -> Mechanism:
    """The worst (ε, δ)-DP pair: with probability δ it tells all."""
    high = 1 / (1 + math.exp(-epsilon))
    inner = ((1 - delta) * high, (1 - delta) * (1 - high))
    return Mechanism((delta, *inner, 0.0), (0.0, *inner[::-1], delta), ApproxDP(epsilon, delta))


def binned(mu: float, edges: Sequence[float]) -> Mechanism:
    """N(μ, 1) against N(0, 1), told in bins."""
    from scipy.stats import norm

    cells = np.array([-np.inf, *edges, np.inf])
    p, q = np.diff(norm.cdf(cells - mu)), np.diff(norm.cdf(cells))
    return Mechanism(tuple(p.tolist()), tuple(q.tolist()), GDP(mu))


def divergence(mechanism: Mechanism, order: float) -> float:
    """The Rényi divergence of an order, the larger of both directions, with a margin for its rounding."""
    p, q = np.array(mechanism.p), np.array(mechanism.q)
    both = (np.sum(q * (p / q) ** order), np.sum(p * (q / p) ** order))
    return float(np.log(max(both)) / (order - 1)) * (1 + 1e-12)


def strongest(
    menu: Sequence[Mechanism],
    allowed: Callable[[tuple[int, ...], int], bool],
    gain: Callable[[float, tuple[int, ...]], float],
    steps: int,
) -> float:
    """The largest E_Q[gain(L, counts)] + P(L = ∞) over all adaptive ways to pick and to stop.

    Args:
        menu: what can be run.
        allowed: whether a mechanism may run after these counts of each.
        gain: what a stop is worth, from the likelihood ratio and the counts of each mechanism.
        steps: at most so many runs.
    """

    @functools.cache
    def value(outcomes: tuple[tuple[int, ...], ...]) -> float:
        counts = tuple(map(sum, outcomes))
        ratio = 1.0
        for mechanism, seen in zip(menu, outcomes, strict=True):
            for p, q, times in zip(mechanism.p, mechanism.q, seen, strict=True):
                ratio *= (p / q) ** times if times else 1.0
        best = gain(ratio, counts)
        for index, mechanism in enumerate(menu):
            if sum(counts) == steps or not allowed(counts, index):
                continue
            total = 0.0
            for outcome, (p, q) in enumerate(zip(mechanism.p, mechanism.q, strict=True)):
                if q == 0:
                    total += ratio * p
                    continue
                more = list(outcomes[index])
                more[outcome] += 1
                total += q * value((*outcomes[:index], tuple(more), *outcomes[index + 1 :]))
            best = max(best, total)
        return best

    return value(tuple((0,) * len(mechanism.p) for mechanism in menu))


def rule_of(make: Callable[[list[Spend]], Filter], menu: Sequence[Mechanism]) -> Callable[[tuple[int, ...], int], bool]:
    """A filter as a rule over counts. Its state is a sum, so the order of what was spent does not matter."""

    @functools.cache
    def state(counts: tuple[int, ...]) -> Filter:
        return make([m.cost for m, count in zip(menu, counts, strict=True) for _ in range(count)])

    @functools.cache
    def allowed(counts: tuple[int, ...], index: int) -> bool:
        return state(counts).admits(menu[index].cost)

    return allowed


def hockey(epsilon: float) -> Callable[[float, tuple[int, ...]], float]:
    return lambda ratio, _: max(ratio - math.exp(epsilon), 0.0)


RESPONSES = [response(0.9), response(0.5), response(0.3)]
LEAKY = [leaky(0.8, 0.004), leaky(0.1, 0.006), response(0.6)]
GAUSSIANS = [binned(0.8, (-0.3, 0.6, 1.4)), binned(0.4, (0.2, 1.0)), response(0.7, GDP(formulas.gdp_of_pure(0.7)))]


@pytest.mark.parametrize(
    ("method", "options", "menu", "steps"),
    [
        ("basic", {}, LEAKY, 6),
        ("zcdp", {}, RESPONSES, 14),
        ("zcdp", {"step_delta": 0.01}, LEAKY, 8),
        ("zcdp", {"orders": (3.0, 6.0, 12.0)}, RESPONSES, 14),
        ("rdp", {}, RESPONSES, 14),
        ("rdp", {"orders": 5}, RESPONSES, 14),
        ("rdp", {"step_delta": 0.01}, LEAKY, 8),
        ("gdp", {}, GAUSSIANS, 7),
        ("gdp", {"step_delta": 0.01}, LEAKY, 8),
    ],
)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.5, 0.05), (3.0, 0.02)])
def test_no_adversary_exceeds_an_approximate_budget(
    method: str, options: dict[str, object], menu: list[Mechanism], steps: int, epsilon: float, delta: float
) -> None:
    def make(spends: list[Spend]) -> Filter:
        return Filter.replay(spends, ApproxDP(epsilon, delta), adjacency="replace_one", method=method, **options)

    allowed = rule_of(make, menu)
    worst = strongest(menu, allowed, hockey(epsilon), steps)
    assert 0 < worst <= delta * EXACT
    backward = [mechanism.swapped for mechanism in menu]
    assert strongest(backward, allowed, hockey(epsilon), steps) <= delta * EXACT


def test_the_pure_filter_is_exact() -> None:
    """Its adversary reaches e^{−ε'} … the whole of ε: nothing above ε, and something at every ε below."""
    menu = [response(0.5), response(0.25)]
    allowed = rule_of(lambda spends: Filter.replay(spends, PureDP(1.5), adjacency="replace_one"), menu)
    assert strongest(menu, allowed, hockey(1.5), 8) <= 1e-15
    total = response(1.5)
    for epsilon in (0.0, 0.5, 1.4):
        worst = strongest(menu, allowed, hockey(epsilon), 8)
        assert 0 < worst <= (total.p[0] - math.exp(epsilon) * total.q[0]) * EXACT


@pytest.mark.parametrize("order", [1.5, 3.0, 10.0])
def test_no_adversary_exceeds_a_renyi_budget(order: float) -> None:
    menu = [response(e) for e in (0.9, 0.5, 0.3)]
    menu = [Mechanism(m.p, m.q, RDP(order, divergence(m, order))) for m in menu]
    menu.append(Mechanism((0.3, 0.7), (0.2, 0.8), PureDP(0.5)))
    budget = 0.8
    allowed = rule_of(lambda spends: Filter.replay(spends, RDP(order, budget), adjacency="replace_one"), menu)
    moment = strongest(menu, allowed, lambda ratio, _: ratio**order, 12)
    assert 1 < moment <= math.exp((order - 1) * budget) * EXACT


def test_no_adversary_exceeds_a_concentrated_budget() -> None:
    menu = [response(0.8), response(0.5), response(0.4, ZCDP(0.08))]
    allowed = rule_of(lambda spends: Filter.replay(spends, ZCDP(0.6), adjacency="replace_one"), menu)
    for order in (1.1, 2.0, 5.0, 20.0):
        moment = strongest(menu, allowed, lambda ratio, _, order=order: ratio**order, 8)  # type: ignore[misc]
        assert 1 < moment <= math.exp((order - 1) * 0.6 * order) * EXACT


def test_pure_steps_fill_a_concentrated_budget_and_no_more() -> None:
    """Two responses of ε = 2 fit into twice the relative entropy of one, 2(e² − 1)/(e² + 1) = 1.523 each, not ε²/2 = 2.
    The adversary's divergence of order α → 1 then is α times the whole budget, so no smaller cost would be true."""
    menu = [response(2.0), response(0.3)]
    budget = 2 * 2 * (math.exp(2.0) - 1) / (math.exp(2.0) + 1) * (1 + 1e-14)
    allowed = rule_of(lambda spends: Filter.replay(spends, ZCDP(budget), adjacency="replace_one"), menu)
    assert allowed((1, 0), 0)
    assert not allowed((2, 0), 1)
    for order, tight in ((1.001, 0.999), (1.1, 0.9), (2.0, 0.0), (5.0, 0.0), (10.0, 0.0)):
        moment = strongest(menu, allowed, lambda ratio, _, order=order: ratio**order, 8)  # type: ignore[misc]
        limit = (order - 1) * budget * order
        assert math.exp(tight * limit) < moment <= math.exp(limit) * EXACT


def test_no_adversary_exceeds_a_gaussian_budget() -> None:
    allowed = rule_of(lambda spends: Filter.replay(spends, GDP(1.2), adjacency="replace_one"), GAUSSIANS)
    for epsilon in (0.0, 0.7, 2.0):
        limit = formulas.delta_from_gdp(1.2, epsilon)
        assert 0.3 * limit < strongest(GAUSSIANS, allowed, hockey(epsilon), 8) <= limit * EXACT


def adaptive_delta(
    path: list[Spend],
    ratio: float,
    make: Callable[[list[Spend]], Filter],
    random: np.random.Generator,
    epsilon: float,
    depth: int,
) -> float:
    """E_Q of max(L − e^ε, 0) of one random adversary, who asks for anything and takes less when it is refused."""
    guard = make(path) if depth else None
    for attempt in range(3 if guard else 0):
        size = float(random.uniform(0.2, 1.6)) / 2**attempt
        mechanism = leaky(size, 0.002) if random.random() < 0.15 else response(size)
        if not guard or not guard.admits(mechanism.cost):
            continue
        total = 0.0
        for p, q in zip(mechanism.p, mechanism.q, strict=True):
            if not q:
                total += ratio * p
            else:
                after = depth - 1 if p else 0
                total += q * adaptive_delta([*path, mechanism.cost], ratio * p / q, make, random, epsilon, after)
        return total
    return max(ratio - math.exp(epsilon), 0.0)


@pytest.mark.grid
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("basic", {}),
        ("zcdp", {"step_delta": 0.01}),
        ("rdp", {"step_delta": 0.01, "orders": (3.0, 8.0)}),
        ("gdp", {"step_delta": 0.01}),
    ],
)
def test_random_adversaries_stay_within_the_budget(method: str, options: dict[str, object]) -> None:
    """Fifty adversaries a method, 200 in all, whose mechanisms have any ε, picked from the outcomes."""
    budget = ApproxDP(2.0, 0.05)

    def make(spends: list[Spend]) -> Filter:
        return Filter.replay(spends, budget, adjacency="replace_one", method=method, **options)

    random = np.random.default_rng(7)
    worst = max(adaptive_delta([], 1.0, make, random, budget.epsilon, 4) for _ in range(50))
    assert 0 < worst <= budget.delta * EXACT


# Rules that are no filters


def composed_delta(epsilons: Sequence[float], counts: Sequence[int], epsilon: float) -> float:
    """δ(ε) of so many randomised responses, fixed in advance: exact."""
    laws = [
        {
            e * (2 * k - n): math.comb(n, k) * (1 / (1 + math.exp(e))) ** k * (1 / (1 + math.exp(-e))) ** (n - k)
            for k in range(n + 1)
        }
        for e, n in zip(epsilons, counts, strict=True)
    ]
    total = {0.0: 1.0}
    for law in laws:
        new: defaultdict[float, float] = defaultdict(float)
        for a, weight in total.items():
            for b, share in law.items():
                new[a + b] += weight * share
        total = dict(new)
    return sum(weight * max(math.exp(loss) - math.exp(epsilon), 0.0) for loss, weight in total.items())


def test_the_exact_composition_so_far_is_no_filter() -> None:
    """Every composition that the rule lets pass is (ε, δ)-DP, and picking among them by outcomes reaches 1.3 δ."""
    epsilons, epsilon = (1.34, 0.58), 2.56
    delta = composed_delta(epsilons, (1, 4), epsilon) * EXACT
    menu = [response(e) for e in epsilons]

    def natural(counts: tuple[int, ...], index: int) -> bool:
        after = [count + (position == index) for position, count in enumerate(counts)]
        return composed_delta(epsilons, after, epsilon) <= delta

    assert strongest(menu, natural, hockey(epsilon), 8) > 1.3 * delta
    for method in ("zcdp", "rdp", "gdp", "basic"):

        def make(spends: list[Spend], method: str = method) -> Filter:
            return Filter.replay(spends, ApproxDP(epsilon, delta), adjacency="replace_one", method=method)

        assert strongest(menu, rule_of(make, menu), hockey(epsilon), 8) <= delta * EXACT


def test_one_of_several_orders_within_its_own_budget_is_no_filter() -> None:
    """After a first step, each outcome goes on with what its own order likes best: 1.8 δ, though every total is within
    what converts to (ε, δ) at one of two orders. Against the mixture of the two, the same attack gets most of δ."""
    epsilon, delta, orders = 5.5, 2e-5, np.array([32.0, 10.0])
    first = Mechanism((0.012, 0.988), (0.009, 0.991), PureDP(1.0))

    def attack(admits: Callable[[np.ndarray], bool]) -> float:
        """The δ(ε) reached by a second step with one unlikely outcome, the best one after each first outcome."""
        gain = 0.0
        for p, q, peaks in zip(first.p, first.q, (range(150, 230, 8), range(230, 310, 8)), strict=True):
            best = 0.0
            for peak in peaks:
                low, high = -40.0, -math.log(peak) - 1e-6  # log of the probability under Q of the unlikely outcome
                for _ in range(50):
                    share = math.exp((low + high) / 2)
                    second = Mechanism((share * peak, 1 - share * peak), (share, 1 - share), PureDP(10.0))
                    totals = np.array([divergence(first, order) + divergence(second, order) for order in orders])
                    low, high = ((low + high) / 2, high) if admits(totals) else (low, (low + high) / 2)
                share = math.exp(low)
                best = max(best, p * share * peak - math.exp(epsilon) * q * share)
            gain += best
        return gain

    def one_is_enough(totals: np.ndarray) -> bool:
        return bool(formulas.epsilon_from_rdp(orders, totals, delta).min() <= epsilon)

    def mixture(totals: np.ndarray) -> bool:
        return stopped_epsilon(orders, equal_weights(orders), totals, delta) <= epsilon

    assert attack(one_is_enough) > 1.8 * delta
    assert 0.8 * delta < attack(mixture) <= delta * EXACT


def test_stopping_at_a_realised_cost_leaks_without_any_other_loss() -> None:
    """Three data sets in a row, 0 ~ 1 ~ 2; 1 and 2 have the same law, and only 1 has a neighbour that differs.

    A guard that adds up what each outcome cost on the data set that ran stops on 1 and goes on for 2: δ = 1 between two
    data sets whose outputs have one law. A filter, which charges the worst case, stops both at the same time.
    """
    laws = {0: response(1.0).p, 1: (0.5, 0.5), 2: (0.5, 0.5)}

    def realised(data: int, outcome: int) -> float:
        around = [other for other in (data - 1, data + 1) if other in laws]
        return max(abs(math.log(laws[data][outcome] / laws[other][outcome])) for other in around)

    def transcripts(data: int, stop: Callable[[int, tuple[int, ...]], bool]) -> dict[tuple[int, ...], float]:
        result: defaultdict[tuple[int, ...], float] = defaultdict(float)
        open_ones: dict[tuple[int, ...], float] = {(): 1.0}
        while open_ones:
            seen, weight = open_ones.popitem()
            if len(seen) == 6 or stop(data, seen):
                result[seen] += weight
            else:
                for outcome, probability in enumerate(laws[data]):
                    open_ones[(*seen, outcome)] = weight * probability
        return result

    def delta(stop: Callable[[int, tuple[int, ...]], bool], first: int, second: int, epsilon: float) -> float:
        p, q = transcripts(first, stop), transcripts(second, stop)
        return sum(max(weight - math.exp(epsilon) * q[seen], 0.0) for seen, weight in p.items())

    def by_realised(data: int, seen: tuple[int, ...]) -> bool:
        return sum(realised(data, outcome) for outcome in seen) > 1.0

    def by_filter(_: int, seen: tuple[int, ...]) -> bool:
        return not Filter.replay([PureDP(1.0)] * len(seen), PureDP(2.0), adjacency="replace_one").admits(PureDP(1.0))

    assert delta(by_realised, 1, 2, 2.0) == pytest.approx(1.0, abs=1e-12)  # 64 products of powers of two
    assert delta(by_filter, 1, 2, 0.0) == 0
    assert delta(by_filter, 0, 1, 2.0) == delta(by_filter, 1, 0, 2.0) == 0


# What is charged


EVENTS: dict[str, DpEvent] = {
    "gaussian": dp_event.GaussianDpEvent(6.0),
    "laplace": dp_event.LaplaceDpEvent(6.0),
    "selection": BoundedRangeSelectionDpEvent(0.2),
    "ex-post selection": ExPostSelectionDpEvent(0.3, 1e-12),
    "parts": ParallelDpEvent([dp_event.LaplaceDpEvent(4.0), dp_event.LaplaceDpEvent(5.0)]),
    "repeated": dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(30.0), 3),
    "nothing": dp_event.NoOpDpEvent(),
}


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("name", EVENTS)
def test_events_cost_what_accountants_say(name: str, adjacency: str) -> None:
    event = EVENTS[name]
    concentrated = Filter.replay([event, event], ZCDP(10.0), adjacency=adjacency).spent()
    assert concentrated.value == accountant("zcdp", adjacency).compose(event, 2).rho().value
    gaussian = Filter.replay([event, event], GDP(10.0), adjacency=adjacency).spent()
    expected = accountant("gdp", adjacency).compose(event, 2).mu().value
    assert gaussian.value == pytest.approx(expected, rel=1e-15)  # two roundings up, of μ² and of its root
    renyi = Filter.replay([event, event], RDP(8, 10.0), adjacency=adjacency).spent()
    expected = accountant("rdp", adjacency).compose(event, 2).divergence(8).value
    assert renyi.value == pytest.approx(expected, rel=1e-14)  # both add a few roundings
    assert renyi.at == 8
    if name != "gaussian":
        pure = Filter.replay([event, event], PureDP(10.0), adjacency=adjacency).spent()
        assert pure.value == accountant("basic", adjacency).compose(event, 2).pure().value
    for bound in (concentrated, gaussian, renyi):
        assert bound.rigor is Rigor.CERTIFIED
        assert bound.adjacency == adjacency
        moving = any("disjoint part" in line for line in bound.assumptions)
        assert moving == (name == "parts" and adjacency == "replace_one")


def test_guarantees_cost_what_they_imply() -> None:
    def spent(budget: Guarantee, *spends: Spend) -> float:
        return Filter.replay(spends, budget, adjacency="zero_out").spent().value

    response = 0.5 * (math.exp(0.5) - 1) / (math.exp(0.5) + 1)  # the relative entropy of randomised response
    assert spent(ZCDP(9), PureDP(0.5), ZCDP(0.25), GDP(1.0)) == pytest.approx(response + 0.25 + 0.5, rel=1e-14)
    assert spent(ZCDP(9), PureDP(0.5)) == spent(ZCDP(9), dp_event.LaplaceDpEvent(2.0))  # an event of the same ε
    assert spent(ZCDP(9), dp_event.ZCDpEvent(0.25, 0.5)) == 0.75  # 0.5 + 0.25α ≤ 0.75α
    assert spent(GDP(9), GDP(3.0), GDP(4.0)) == 5.0
    assert spent(PureDP(9), PureDP(0.5), PureDP(0.25), ZCDP(0), RDP(2, 0)) == 0.75
    assert spent(RDP(4, 9), RDP(5, 0.5)) == 0.5
    assert spent(RDP(4, 9), ZCDP(0.25)) == pytest.approx(1.0, rel=1e-15)
    with pytest.raises(BudgetExhausted):
        spent(RDP(4, 9), RDP(3, 0.001))  # a divergence of a lower order bounds nothing
    pure, renyi = math.exp(1.5 * 4) * 1 / (1 + math.exp(1.5)), math.exp(-1.5 * 4) * math.exp(1.5) / (1 + math.exp(1.5))
    assert spent(RDP(4, 9), PureDP(1.5)) == pytest.approx(math.log(pure + renyi) / 3, rel=1e-12)


def test_what_a_budget_must_not_overlook() -> None:
    spends: list[tuple[Guarantee, dict[str, object], Spend]] = [
        (ZCDP(0.5), {}, dp_event.ZCDpEvent(0.25, 0.5)),  # its ξ
        (ApproxDP(5, 1e-5), {"method": "basic"}, ApproxDP(0.1, 2e-5)),  # its δ
        (ApproxDP(5, 1e-5), {"method": "zcdp"}, ApproxDP(0.1, 1e-9)),  # its δ, where none is set aside
        (PureDP(5), {}, ApproxDP(0.1, 1e-9)),
        (ZCDP(5), {}, ApproxDP(0.1, 1e-9)),
        (GDP(5), {}, ApproxDP(0.1, 1e-9)),
    ]
    for budget, options, spend in spends:
        assert not Filter(budget, adjacency="add_remove", **options).admits(spend)  # type: ignore[arg-type]
    # A divergence whose numerical error is not counted is not used, even where other orders are.
    total = Meter("rdp", "add_remove", orders=(2.5, 8.0)).cost(sampled(0.01, 1.0))
    assert math.isinf(total.cost[0])
    assert 0 < total.cost[1] < 0.1


def test_an_event_that_changed_since_is_counted_anew() -> None:
    parts = [dp_event.LaplaceDpEvent(8.0)]
    event = dp_event.ComposedDpEvent(parts)
    guard = Filter.replay([event], PureDP(1.0), adjacency="add_remove")
    event.events.append(dp_event.LaplaceDpEvent(4.0))
    guard.spend(event)
    assert guard.spent().value == 1 / 8 + 1 / 8 + 1 / 4


@pytest.mark.parametrize("method", ["gdp", "zcdp", "rdp"])
def test_events_that_numpy_writes_alike_are_counted_apart(method: str) -> None:
    """A filter charged the second 1/20 of its cost. Truth: a record in 2^k - 1 steps is in k levels of the tree, a
    Gaussian of sensitivity √k each, so ρ = k/2."""
    counts = np.ones(2001, dtype=int)
    cheap = dp_event.SingleEpochTreeAggregationDpEvent(1.0, counts)
    counts = counts.copy()
    counts[1000] = 2**20 - 1
    dear = dp_event.SingleEpochTreeAggregationDpEvent(1.0, counts)
    assert repr(cheap) == repr(dear)
    meter = Meter(method, "add_remove", orders=2.0 if method == "rdp" else None)
    spent = [float(np.ravel(meter.cost(event).cost)[0]) for event in (cheap, dear)]
    rho = spent if method == "zcdp" else [cost / 2 for cost in spent]  # gdp: μ² = 2ρ; rdp: 2ρ at order 2
    assert rho == pytest.approx([1 / 2, 20 / 2], rel=1e-12)  # rdp rounds up


@pytest.mark.parametrize(
    "spend",
    [
        ExPostDP(0.1),
        costs.TokenCosts(np.zeros(1), np.zeros(1), np.zeros(1)),
        costs.token_costs([[1.0, 0.0]], [0], clip=4, temperature=1),
    ],
)
def test_a_realised_cost_is_refused_in_every_form(spend: Spend) -> None:
    guard = Filter(PureDP(5), adjacency="add_remove")
    for ask in (guard.spend, guard.admits):
        with pytest.raises(ValueError, match="realised, ex-post cost"):
            ask(spend)
    assert guard.spent().value == 0


def test_an_ex_post_selection_enters_at_its_range() -> None:
    guard = Filter.replay([ExPostSelectionDpEvent(1.0)], PureDP(5), adjacency="add_remove")
    assert guard.spent().value == 1.0


@pytest.mark.parametrize("budget", [ExPostDP(1.0), SecretProtection(0.1, 0.2), PrivacyProfile((1.0,), (1e-5,))])
def test_a_budget_without_a_filter_is_refused(budget: Guarantee) -> None:
    with pytest.raises(ValueError, match=f"budget must be .* not {type(budget).__name__}"):
        Filter(budget, adjacency="add_remove")


def test_bad_arguments_are_refused_in_one_line() -> None:
    budget = ApproxDP(1, 1e-5)
    cases: list[tuple[str, Callable[[], object]]] = [
        ("method must be one of basic", lambda: Filter(PureDP(1), adjacency="add_remove", method="rdp")),
        ("orders are for ApproxDP", lambda: Filter(PureDP(1), adjacency="add_remove", orders=3)),
        ("orders must be", lambda: Filter(budget, adjacency="add_remove", orders=(2, 2))),
        ("orders must be", lambda: Filter(budget, adjacency="add_remove", orders=1)),
        ("step_delta must be below", lambda: Filter(budget, adjacency="add_remove", step_delta=1e-5)),
        ("step_delta is a part", lambda: Filter(ZCDP(1), adjacency="add_remove", step_delta=1e-5)),
        ("adjacency must be one of", lambda: Filter(budget, adjacency="other")),
        ("records or users", lambda: Filter(budget, adjacency="add_remove", unit=Unit("group", 3))),
        ("records or users", lambda: Filter(budget, adjacency="secret")),
        ("an event or a guarantee", lambda: Filter(budget, adjacency="add_remove").spend(0.1)),
        ("has no cost for RDP", lambda: Filter(ZCDP(1), adjacency="add_remove").spend(RDP(2, 0.1))),
        ("no bound", lambda: Filter(ZCDP(1), adjacency="add_remove").spend(sampled(0.1, 1.0))),
        ("certified; use whole", lambda: Filter(RDP(2.5, 1), adjacency="add_remove").spend(sampled(0.1, 1.0))),
    ]
    for match, act in cases:
        with pytest.raises(ValueError, match=match) as caught:
            act()
        assert "\n" not in str(caught.value)


def sampled(rate: float, multiplier: float) -> DpEvent:
    return dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier))


# How tight


def test_a_concentrated_filter_allows_the_largest_rho() -> None:
    """The filter of one order, picked for the budget, allows the ρ at which the best of all orders converts to ε."""
    for epsilon, delta in ((0.3, 1e-6), (2.0, 1e-5), (9.0, 1e-9)):
        left = Filter(ApproxDP(epsilon, delta), adjacency="add_remove", method="zcdp").remaining()
        assert isinstance(left, ZCDP)
        # Grids of orders with steps of 0.75 % are off the best by less than 1e-5 of ε (the optimum is flat).
        assert formulas.epsilon_from_zcdp(left.rho, delta) == pytest.approx(epsilon, rel=1e-5)


@given(
    st.lists(st.tuples(st.floats(0.001, 0.6), st.sampled_from([0.0, 1e-8, 1e-7])), min_size=1, max_size=60),
    st.floats(0.5, 4.0),
)
@examples(14, 40, derandomize=True)
def test_all_that_the_closed_form_rule_admits_is_admitted(steps: list[tuple[float, float]], epsilon: float) -> None:
    """√(2 log(1/δ′) Σ ε_i²) + ½Σ ε_i² ≤ ε and Σ δ_i ≤ δ″ (Whitehouse et al. 2023)."""
    guard = Filter(ApproxDP(epsilon, 1.1e-5), adjacency="add_remove", method="zcdp", step_delta=1e-6)
    squares = deltas = 0.0
    for size, delta in steps:
        squares, deltas = squares + size**2, deltas + delta
        closed = math.sqrt(2 * math.log(1 / 1e-5) * squares) + squares / 2
        spend = ApproxDP(size, delta) if delta else PureDP(size)
        if closed * (1 + 1e-9) <= epsilon and deltas * (1 + 1e-9) <= 1e-6:
            assert guard.admits(spend)
        if not guard.admits(spend):
            break
        guard.spend(spend)


def test_the_order_of_the_plan_admits_the_plan() -> None:
    """A filter at the plan's own best order allows as many steps as an accountant, one at a mixture some fewer."""
    step, delta = sampled(0.01, 1.0), 1e-5
    plan = dp_event.SelfComposedDpEvent(step, 1000)
    epsilon = accountant("rdp", "add_remove").compose(plan).epsilon(delta).value
    order = order_for(plan, delta, adjacency="add_remove")
    budget = ApproxDP(epsilon * (1 + 1e-12), delta)
    item = Filter(budget, adjacency="add_remove", orders=order)
    assert item.admits(plan)
    assert not item.admits(dp_event.SelfComposedDpEvent(step, 1001))
    several = Filter(budget, adjacency="add_remove")
    assert not several.admits(plan)
    # An order of the mixture has at least 1/26 of δ, so the plan is admitted at what that costs.
    divergence = accountant("rdp", "add_remove").compose(plan).divergence(12).value
    looser = ApproxDP(float(formulas.epsilon_from_rdp(12.0, divergence, delta / 26.01)), delta)
    assert Filter(looser, adjacency="add_remove").admits(plan)


def test_gaussians_are_cheapest_by_gaussian_dp() -> None:
    """100 steps of σ = 20 are μ = 1/2; (2, 1e-5) allows μ = 0.5016 (delta_from_gdp), and by zCDP 86 of them."""
    for method, steps in (("gdp", 100), ("zcdp", 86)):
        guard = Filter(ApproxDP(2, 1e-5), adjacency="add_remove", method=method)
        assert guard.admits(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(20.0), steps))
        assert not guard.admits(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(20.0), steps + 1))


def test_decimal_steps_are_taken_as_they_are_in_binary() -> None:
    guard = Filter(PureDP(1.0), adjacency="add_remove")
    for _ in range(9):
        guard.spend(PureDP(0.1))
    assert not guard.admits(PureDP(0.1))
    assert guard.admits(PureDP(0.09999999999999995))
    assert Filter.replay([dp_event.LaplaceDpEvent(3.0)] * 3, PureDP(1.0), adjacency="add_remove").admits(PureDP(0))


# State


SPENDS: list[Spend] = [
    PureDP(0.05),
    PureDP(0.3),
    ApproxDP(0.1, 1e-8),
    dp_event.LaplaceDpEvent(12.0),
    BoundedRangeSelectionDpEvent(0.15),
    dp_event.NoOpDpEvent(),
]
BUDGETS: list[tuple[Guarantee, dict[str, object]]] = [
    (PureDP(1.0), {}),
    (ApproxDP(1.0, 1e-5), {"method": "basic"}),
    (ApproxDP(1.0, 1e-5), {"method": "zcdp", "step_delta": 5e-8}),
    (ApproxDP(1.0, 1e-5), {"method": "rdp", "step_delta": 5e-8}),
    (ApproxDP(1.0, 1e-5), {"method": "gdp", "step_delta": 5e-8}),
    (ZCDP(0.05), {}),
    (RDP(6, 0.2), {}),
    (GDP(0.4), {}),
]


@pytest.mark.grid
@pytest.mark.parametrize(("budget", "options"), BUDGETS)
@given(picks=st.lists(st.integers(0, len(SPENDS) - 1), max_size=25))
@settings(max_examples=8, derandomize=True)
def test_a_filter_only_fills_up(budget: Guarantee, options: dict[str, object], picks: list[int]) -> None:
    guard = Filter(budget, adjacency="add_remove", **options)  # type: ignore[arg-type]
    charged: list[Spend] = []
    for pick in picks:
        before, admitted = guard.spent().value, guard.admits(SPENDS[pick])
        assert guard.spent().value == before  # asking charges nothing
        try:
            guard.spend(SPENDS[pick])
        except BudgetExhausted:
            assert not admitted
            assert guard.spent().value == before  # a refusal charges nothing
        else:
            assert admitted
            charged.append(SPENDS[pick])
            assert guard.spent().value >= before
    left = guard.remaining()
    assert guard.admits(left)
    guard.spend(left)
    assert guard.guarantee == budget
    again = Filter.replay(charged, budget, adjacency="add_remove", **options)
    again.spend(left)
    assert again.spent() == guard.spent()


@pytest.mark.parametrize(("budget", "options"), BUDGETS)
def test_what_remains_is_the_largest(budget: Guarantee, options: dict[str, object]) -> None:
    guard = Filter.replay([PureDP(0.05)], budget, adjacency="add_remove", **options)
    left = guard.remaining()
    match left:
        case PureDP(epsilon) | ApproxDP(epsilon, _):
            assert not guard.admits(PureDP(epsilon * (1 + 1e-8)))
        case ZCDP(rho):
            assert not guard.admits(ZCDP(rho * (1 + 1e-8)))
        case RDP(alpha, epsilon):
            assert not guard.admits(RDP(alpha, epsilon * (1 + 1e-8)))
        case GDP(mu):
            assert not guard.admits(GDP(mu * (1 + 1e-8)))


def test_what_already_ran_is_never_left_out() -> None:
    """A filter that is rebuilt over too much does not exist: it neither forgets nor goes on."""
    with pytest.raises(BudgetExhausted, match="already ran exceeds"):
        Filter.replay([PureDP(0.6), PureDP(0.6)], PureDP(1.0), adjacency="add_remove")
    with pytest.raises(ValueError, match="has none"):
        Filter.replay([dp_event.GaussianDpEvent(1.0)], PureDP(1.0), adjacency="add_remove")


def test_a_filter_is_rebuilt_from_the_ledger_of_a_run(path: Path, little: object) -> None:
    """Also after a kill between charge and commit: what was charged counts."""
    with Ledger.open(path) as ledger:
        run = little.begin(ledger)  # type: ignore[attr-defined]
        run.step(charge=little.charge(0))  # type: ignore[attr-defined]
    with Ledger.open(path, read_only=True) as ledger:
        guard = Filter.replay([ledger.event()], PureDP(100.0), adjacency="add_remove")
    selection = little.selection  # type: ignore[attr-defined]
    expected = accountant("basic", "add_remove").compose(selection).pure().value
    assert guard.spent().value == expected


def test_a_filter_is_not_copied() -> None:
    guard = Filter(PureDP(1.0), adjacency="add_remove")
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="spent twice"):
            act(guard)


def test_threads_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may run between the sum and the charge; without a lock they would overwrite each other."""
    guard = Filter(PureDP(10.0), adjacency="add_remove")
    admitted: list[int] = []
    add = guard._meter.add

    def slow_add(first: Total, second: Total) -> Total:
        total = add(first, second)
        time.sleep(1e-4)
        return total

    def work() -> None:
        for _ in range(6):
            try:
                guard.spend(PureDP(0.5))
                admitted.append(1)
            except BudgetExhausted:
                pass

    monkeypatch.setattr(guard._meter, "add", slow_add)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 20
    assert guard.spent().value == 10.0


def test_sums_of_many_different_fractions_stay_short_and_above() -> None:
    """Laplace scales that are all different: the exact sum of 200 fractions has a denominator of 10 000 digits."""
    scales = [100 + 1 / (k + 1.5) for k in range(200)]
    guard = Filter.replay([dp_event.LaplaceDpEvent(scale) for scale in scales], PureDP(9.0), adjacency="add_remove")
    exact = sum((1 / Fraction(scale) for scale in scales), start=Fraction(0))
    assert exact.denominator.bit_length() > 8000
    total = Fraction(guard._total.pure)
    assert exact <= total <= exact + Fraction(len(scales), 2**2048)
    assert total.denominator.bit_length() <= 4096


def test_the_guide_runs() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "filters.md").read_text()
    code = "".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    printed = "".join(re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == printed
