"""What docs/proofs/many-runs.md states: no choice of pairs and events errs more often than stated, in any order."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from dpassay.accounting.guarantees import PureDP
from dpassay.attacks.black_box.output_events import Event
from dpassay.attacks.black_box.output_features import FAILED, Features
from dpassay.audits.games.many_runs import ManyRuns
from dpassay.audits.games.many_runs_design import GeneratorRun, ManyRunsDesign, Pair
from dpassay.audits.games.many_runs_power import runs_needed
from dpassay.audits.result import AuditResult
from dpassay.audits.statistics.sequential import Sequential, Wealth
from dpassay.base.arrays import Floats

Law = Sequence[float]
Results = dict[GeneratorRun, Mapping[str, Features]]


def staircase(epsilon: float, delta: float) -> tuple[Law, Law]:
    """Laws on D and D′ of three outcomes, the last of which is a failure: at (ε, δ) exactly, in both directions."""
    grow = math.exp(epsilon)
    low = (1 - delta) / (1 + grow) / 2
    return (delta + grow * low, low * (1 + grow), low), (low, low * (1 + grow), delta + grow * low)


EVENTS = ([0], [1], [2])
"""Sets of outcomes up to complements, which are the same: gamblers bet on both."""


def most_false_alarms(epsilon: float, delta: float, confidence: float, rounds: int) -> float:
    """The largest probability, over all adaptive choices of events, that (ε, δ) is rejected within so many rounds.

    All histories are enumerated: each round has an event, chosen with knowledge of all rounds before, and happened or
    not on either data set.
    """
    laws = [np.asarray(law) for law in staircase(epsilon, delta)]
    hits = [(on_d, on_d_prime) for on_d in (True, False) for on_d_prime in (True, False)]
    rates = [[law[event].sum() for law in laws] for event in EVENTS]
    chances = np.array(
        [[(p if first else 1 - p) * (q if second else 1 - q) for first, second in hits] for p, q in rates]
    )
    sides = np.tile(hits, (len(EVENTS), 1))
    wealth = Wealth(np.array([epsilon]), delta, (1,))
    for _ in range(rounds):
        before = wealth
        wealth = Wealth(np.array([epsilon]), delta, (before.best.shape[0] * len(sides),))
        for name in ("hits", "runs", "logs", "best"):
            setattr(wealth, name, np.repeat(getattr(before, name), len(sides), axis=0))
        wealth.update(*np.tile(sides.T, before.best.shape[0]))
    value: Floats = (wealth.best[:, 0] >= -math.log1p(-confidence)).astype(np.float64)
    for _ in range(rounds):
        value = (value.reshape(-1, *chances.shape) * chances).sum(axis=2).max(axis=1)
    return float(value[0])


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (0.5, 0.0), (0.2, 0.05)])
@pytest.mark.parametrize("confidence", [0.2, 0.35])
def test_no_choice_of_events_errs_more_often_than_stated(epsilon: float, delta: float, confidence: float) -> None:
    """Exact, over all choices that depend on what was seen; the laws include a failure."""
    assert 0 < most_false_alarms(epsilon, delta, confidence, rounds=5) <= 1 - confidence


def test_events_that_are_chosen_after_the_round_err_more_often() -> None:
    """Whoever sees a round first names the outcome on D′ if the two differ, and one that did not occur if not."""
    generator = np.random.default_rng(0)
    on_d, on_d_prime = (generator.choice(3, (30, 500), p=law) for law in staircase(0.1, 0.0))
    wealth = Wealth(np.array([0.1]), 0.0, (500,))
    for first, second in zip(on_d, on_d_prime, strict=True):
        wealth.update(np.zeros(500), first != second)
    assert (wealth.best[:, 0] >= -math.log1p(-0.95)).mean() > 0.9


def test_the_laws_are_at_the_boundary() -> None:
    for epsilon, delta in ((0.5, 0.0), (0.2, 0.05)):
        laws = staircase(epsilon, delta)
        assert all(math.isclose(sum(law), 1) for law in laws)
        for first, second in (laws, laws[::-1]):
            excess = sum(max(0.0, p - math.exp(epsilon) * q) for p, q in zip(first, second, strict=True))
            assert math.isclose(excess, delta, abs_tol=1e-12)


PAIRS = tuple(Pair(f"pair {place}", 0, place, (Event(f"feature {place}", 1.0),)) for place in (1, 2, 3))


def outcome(run: GeneratorRun, seed: int, law: Callable[[int], Law]) -> dict[str, Features]:
    """The features of a run whose outcome, 0, 1 or a failure, has the law of its data set."""
    draw = random.Random(f"{seed} {run}")
    (result,) = draw.choices(range(3), law(run.data))
    if result == 2:
        return {"": {FAILED: 1.0}, **{pair.name: {} for pair in PAIRS}}
    return {"": {FAILED: 0.0}, **{pair.name: {f"feature {pair.neighbor}": float(result)} for pair in PAIRS}}


def audited(
    design: ManyRunsDesign, seed: int, law: Callable[[int], Law], *, ahead: int = 1, shuffle: bool = False
) -> tuple[AuditResult, Results]:
    """An audit of a generator with these laws; with `shuffle`, results arrive in any order and are read in between."""
    audit, order = ManyRuns(design), random.Random(seed)
    results: Results = {}
    under_way: list[GeneratorRun] = []
    while True:
        under_way += [run for run in audit.wanted(ahead) if run not in under_way]
        if not under_way:
            return audit.result(), results
        if shuffle:
            order.shuffle(under_way)
            audit.result()
        run = under_way.pop()
        results[run] = outcome(run, seed, law)
        audit.add(run, results[run])


def at_the_claim(data: int) -> Law:
    return staircase(1.0, 0.0)[1 if data else 0]


def leaking(data: int) -> Law:
    return (0.05, 0.9, 0.05) if data == 2 else (0.9, 0.05, 0.05)


def replayed(audit: AuditResult, results: Results) -> list[float]:
    """The bound after each round, by what the audit says of its bets: only rounds are bet on."""
    state, bounds = Sequential(delta=0.0, confidence=0.95), []
    seen: dict[int, list[GeneratorRun]] = {0: [], 1: [], 2: [], 3: []}

    def happened(run: GeneratorRun, bet: Mapping[str, Any], pair: Pair) -> bool:
        features = results[run]
        return bool({**features[""], **features[pair.name]}.get(bet["feature"], -math.inf) >= bet["threshold"])

    for number in range(audit.details["rounds"]):
        chosen = [item for item in audit.details["bets"] if item["from_round"] <= number][-1]
        pair = next(pair for pair in PAIRS if pair.name == chosen["pair"])
        runs = [GeneratorRun("test", data, number) for data in _of(pair)]
        factors = [np.full(state.grid.size, 1 - sum(bet["share"] for bet in chosen["bets"]))]
        for bet in chosen["bets"]:
            one = Wealth(state.grid, 0.0)
            hits = [sum(happened(run, bet, pair) for run in seen[data]) for data in _of(pair)]
            one.expect(hits, [len(seen[data]) for data in _of(pair)])
            one.update(happened(runs[0], bet, pair), happened(runs[1], bet, pair))
            factors.append(bet["share"] * np.exp(one.logs))
        state.bet(np.log(sum(factors)))
        for run in runs:
            seen[run.data].append(run)
        bounds.append(state.epsilon)
    return bounds


def _of(pair: Pair) -> tuple[int, int]:
    return pair.data, pair.neighbor


DESIGN = ManyRunsDesign(pairs=PAIRS, runs=150, claim=PureDP(1.0), stop=False)


@pytest.mark.parametrize("law", [at_the_claim, leaking])
def test_the_bound_is_that_of_the_rounds_of_the_test_alone(law: Callable[[int], Law]) -> None:
    """Nothing else is counted; the bound never falls."""
    audit, results = audited(DESIGN, 1, law)
    bounds = replayed(audit, results)
    assert audit.details["bounds_by_round"] == bounds == sorted(bounds)
    assert audit.bounds[0].value == bounds[-1]
    assert audit.details["runs"] == len(results) == 2 * len(bounds)
    assert (audit.bounds[0].value > 1) is (law is leaking)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("law", [at_the_claim, leaking])
def test_results_may_arrive_in_any_order_and_be_read_at_any_time(law: Callable[[int], Law], stop: bool) -> None:
    """Rounds are counted by their numbers, so workers change nothing that is shown."""
    design = ManyRunsDesign(pairs=PAIRS, runs=150, claim=PureDP(1.0), stop=stop)
    calm, _ = audited(design, 2, law)
    for ahead in (1, 2, 7):
        shuffled, made = audited(design, 2, law, ahead=ahead, shuffle=True)
        assert shuffled.details["bounds_by_round"] == calm.details["bounds_by_round"]
        assert shuffled.details["bets"] == calm.details["bets"]
        assert shuffled.bounds == calm.bounds
        assert calm.details["runs"] <= len(made) <= calm.details["runs"] + 2 * ahead


ONE = PAIRS[:1]
MANY = tuple(Pair(f"pair {place}", 2 * place, 2 * place + 1, (Event("feature", 1.0),)) for place in range(8))


@pytest.mark.grid
@pytest.mark.parametrize("pairs", [ONE, PAIRS, MANY], ids=len)
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 3.0])
def test_no_outcome_of_fewer_runs_than_are_needed_refutes_a_claim(epsilon: float, pairs: tuple[Pair, ...]) -> None:
    """Played with a generator that gives D′ away in every run, than which none is refuted sooner; three times as many
    runs do refute it."""
    needed = runs_needed(ManyRunsDesign(pairs=pairs, runs=20, claim=PureDP(epsilon)))
    assert needed is not None

    def refuted(runs: int) -> bool:
        audit = ManyRuns(ManyRunsDesign(pairs=pairs, runs=runs, claim=PureDP(epsilon)))
        while wanted := audit.wanted(16):
            for run in wanted:
                shown = float(any(run.data == pair.neighbor for pair in pairs))
                audit.add(run, {"": {"feature": shown}, **{pair.name: {} for pair in pairs}})
        return bool(audit.result().details.get("refuted"))

    assert not any(refuted(runs) for runs in range(max(20, needed - 12), needed))
    assert refuted(3 * needed)


def test_some_claims_need_more_runs_than_there_can_be() -> None:
    for epsilon, needed in ((16.0, None), (15.0, None), (4.0, 244)):
        assert runs_needed(ManyRunsDesign(pairs=PAIRS, runs=20, claim=PureDP(epsilon))) == needed


def test_a_failure_is_an_outcome() -> None:
    """On D no run fails, on D′ every second one, and ε = 0.25 is claimed."""
    design = ManyRunsDesign(pairs=PAIRS, runs=120, claim=PureDP(0.25))
    audit, _ = audited(design, 3, lambda data: (0.25, 0.25, 0.5) if data else (0.5, 0.5, 0.0))
    assert audit.details["refuted"]
    assert audit.details["failures"]["on_data"] == 0 < audit.details["failures"]["on_neighbor"]


def test_a_pair_that_always_fails_is_tested_if_failures_are_asked_for() -> None:
    def law(data: int) -> Law:
        return (0.0, 0.0, 1.0) if data else (0.5, 0.5, 0.0)

    left_out, _ = audited(ManyRunsDesign(pairs=PAIRS, runs=60, claim=PureDP(1.0)), 4, law)
    assert left_out.bounds == ()
    assert left_out.details["failing"] == [pair.name for pair in PAIRS]
    asked, _ = audited(ManyRunsDesign(pairs=PAIRS, runs=60, claim=PureDP(1.0), failures=True), 4, law)
    assert asked.details["refuted"]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [True, False])
def test_search_and_test_together_err_at_most_as_often_as_stated(stop: bool) -> None:
    """At confidence 0.5 and 400 audits of a generator at the claim, 241 false alarms or more have probability below
    5e-5 (binomial)."""
    law = staircase(0.1, 0.0)
    design = ManyRunsDesign(pairs=PAIRS, runs=120, confidence=0.5, claim=PureDP(0.1), stop=stop)
    audits = [audited(design, seed, lambda data: law[1 if data else 0])[0] for seed in range(400)]
    assert 0 < sum(bool(audit.details.get("refuted")) for audit in audits) < 241
