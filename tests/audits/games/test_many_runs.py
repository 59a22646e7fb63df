"""Many runs: which runs are asked for, in any order of arrival; what is tested; and that a bound is a replay of it."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples
from scipy import stats

from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.attacks.black_box.output_events import Event
from dpassay.attacks.black_box.output_features import FAILED, Features
from dpassay.audits.games import many_runs_halving
from dpassay.audits.games.event_choice import choose_event
from dpassay.audits.games.many_runs import ManyRuns
from dpassay.audits.games.many_runs_design import MIN_RUNS, GeneratorRun, ManyRunsDesign, Pair
from dpassay.audits.games.many_runs_power import REPETITIONS, chance_to_refute, detectable_leak, power
from dpassay.audits.result import AuditResult
from dpassay.audits.statistics.sequential import Sequential, Wealth
from dpassay.audits.statistics.two_sample import log_bets

EXPECTED = Event("seen", 1.0)


def shared(count: int) -> tuple[Pair, ...]:
    """Pairs that share their D."""
    return tuple(Pair(f"pair {index}", 0, index + 1, (EXPECTED,)) for index in range(count))


def apart(count: int) -> tuple[Pair, ...]:
    """Pairs that share nothing."""
    return tuple(Pair(f"pair {index}", 2 * index, 2 * index + 1, (EXPECTED,)) for index in range(count))


class Mechanism:
    """Outputs whose feature `seen` is 1 with a probability that depends on the data set, and noise.

    Args:
        pairs: of the design.
        rates: probability by data set; 0.2 for others.
        fails: probability of a failure by data set.
        seed: of all runs; the output of a run depends on the run alone.
    """

    def __init__(
        self,
        pairs: tuple[Pair, ...],
        rates: Mapping[int, float],
        fails: Mapping[int, float] | None = None,
        seed: int = 0,
    ) -> None:
        self._pairs, self._rates, self._fails, self._seed = pairs, rates, fails or {}, seed

    def __call__(self, run: GeneratorRun) -> dict[str, Features]:
        rng = np.random.default_rng([self._seed, run.phase == "test", run.data, run.number])
        names = [pair.name for pair in self._pairs if run.data in (pair.data, pair.neighbor)]
        if rng.random() < self._fails.get(run.data, 0.0):
            return {"": {FAILED: 1.0}, **{name: {} for name in names}}
        seen = float(rng.random() < self._rates.get(run.data, 0.2))
        noise = {"rows": float(rng.integers(100)), "mean": float(rng.normal()), FAILED: 0.0}
        return {"": noise, **{name: {"seen": seen, "other": float(rng.integers(3))} for name in names}}


def design(pairs: tuple[Pair, ...], runs: int = 100, **more: Any) -> ManyRunsDesign:
    return ManyRunsDesign(**{"pairs": pairs, "runs": runs, "claim": PureDP(1.0), **more})


def played(plan: ManyRunsDesign, mechanism: Mechanism, ahead: int = 1) -> tuple[ManyRuns, list[GeneratorRun]]:
    """A finished audit, and its runs in the order in which they were asked for."""
    audit, made = ManyRuns(plan), list[GeneratorRun]()
    while wanted := audit.wanted(ahead):
        assert len(set(wanted)) == len(wanted)
        for run in wanted:
            assert run not in made
            audit.add(run, mechanism(run))
            made.append(run)
    return audit, made


def without(result: AuditResult, *names: str) -> dict[str, Any]:
    body = result.to_json()
    return {**body, "details": {key: value for key, value in body["details"].items() if key not in names}}


LEAKS = {"one": {2: 0.9}, "none": {}, "all": {0: 0.0, **dict.fromkeys(range(1, 12), 1.0)}}


@pytest.mark.grid
@pytest.mark.parametrize("halving", [False, True])
@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("pairs", [shared(4), apart(3), shared(1)], ids=["shared", "apart", "one"])
def test_the_order_of_arrival_does_not_matter(leak: str, pairs: tuple[Pair, ...], halving: bool) -> None:
    """Also not how many are asked for at a time, or whether the audit was begun anew with what had arrived."""
    plan, mechanism = design(pairs, halving=halving), Mechanism(pairs, LEAKS[leak])
    whole, made = played(plan, mechanism)
    for seed, ahead in itertools.product(range(3), (1, 4)):
        drawn, audit, arrived = random.Random(seed), ManyRuns(plan), list[GeneratorRun]()
        while wanted := audit.wanted(ahead):
            for run in drawn.sample(wanted, drawn.randint(1, len(wanted))):
                audit.add(run, mechanism(run))
                arrived.append(run)
            if drawn.random() < 0.3:  # interrupted, and resumed from what is on the disk
                audit = ManyRuns(plan)
                for run in drawn.sample(arrived, len(arrived)):
                    audit.add(run, mechanism(run))
        # With several rounds ahead, some runs may be made after the claim is refuted; none of them is counted.
        assert set(made) <= set(arrived)
        assert set(made) == set(arrived) or ahead > 1
        assert without(audit.result(), "runs") == without(whole.result(), "runs")


@given(
    st.integers(MIN_RUNS, 130),
    st.integers(1, 12),
    st.booleans(),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=24, max_size=24),
    st.booleans(),
    st.integers(1, 5),
    st.booleans(),
)
@examples(12, 25)
def test_no_audit_makes_more_runs_than_planned(
    runs: int, count: int, share: bool, fails: list[float], failures: bool, ahead: int, halving: bool
) -> None:
    pairs = shared(count) if share else apart(count)
    plan = design(pairs, runs, failures=failures, stop=False, halving=halving)
    audit, made = played(plan, Mechanism(pairs, {1: 1.0}, dict(enumerate(fails))), ahead)
    assert len(made) <= runs
    pilots = [run for run in made if run.phase == "pilot"]
    assert halving <= len(pilots) <= plan.pilots
    result = audit.result()
    assert result.details["runs"] == len(made)
    tested = [run for run in made if run.phase == "test"]
    if result.details["exhausted"]:
        assert not result.bounds
    else:
        assert result.trials == len(tested) == 2 * result.details["most_rounds"]
        assert {run.data for run in tested} <= {pair.data for pair in pairs} | {pair.neighbor for pair in pairs}
        assert runs - len(made) <= 1
    tried = {item["pair"] for item in result.details["search"]}
    if not result.details["exhausted"]:  # then pairs whose D failed three times are left without a run of their own
        assert tried | set(result.details["untried"]) == {pair.name for pair in pairs}
    result.to_json()


def test_a_tiny_budget_names_the_pairs_that_it_did_not_try() -> None:
    pairs = shared(11)
    audit, made = played(design(pairs, 20, stop=False, halving=True), Mechanism(pairs, {}))
    assert sum(run.phase == "pilot" for run in made) == 8
    assert audit.result().details["untried"] == [f"pair {index}" for index in range(7, 11)]
    assert audit.result().details["most_rounds"] == 6
    details = played(design(pairs, 20, stop=False), Mechanism(pairs, {}))[0].result().details
    assert details["most_rounds"] == 10
    assert len(details["untried"]) + len(details["search"]) == 11
    assert len(details["search"]) <= 10


@pytest.mark.parametrize("halving", [False, True])
def test_a_claim_that_no_outcome_could_refute_is_not_tested(halving: bool) -> None:
    pairs = shared(2)
    plan = design(pairs, 20, claim=PureDP(10.0), halving=halving)
    audit, made = played(plan, Mechanism(pairs, {1: 1.0, 0: 0.0}))
    result = audit.result()
    assert {run.phase for run in made} == {"pilot" if halving else "test"}
    assert result.trials == 2 * result.details["rounds"] == 2 * (not halving)
    assert result.details["stopped"] == "no outcome of the other runs could refute the claim"
    assert "nothing follows for the claim" in result.conclusion
    assert not result.concluded
    result.to_json()


@pytest.mark.grid
@pytest.mark.parametrize("delta", [0.0, 0.1])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.7, 1.2])
def test_what_could_not_exceed_a_claim_never_does(epsilon: float, delta: float) -> None:
    """All sequences of up to six rounds, at a confidence so low that six rounds show something."""
    outcomes = np.array([(False, False), (False, True), (True, False), (True, True)])
    grid = np.round(np.arange(0, 3.05, 0.1), 10)
    hopeless = 0
    for before, after in ((0, 5), (2, 4), (3, 3), (4, 2), (5, 1)):
        sequences = outcomes[np.array(list(itertools.product(range(4), repeat=before + after)))]
        played = Wealth(grid, delta, (len(sequences),))
        for number in range(before + after):
            played.update(sequences[:, number, 0], sequences[:, number, 1])
        exceeded = grid[np.maximum(played.rejected(0.3) - 1, 0)] > epsilon
        for prefix in range(4**before):
            rest = slice(prefix * 4**after, (prefix + 1) * 4**after)
            start = Sequential(delta=delta, confidence=0.3, largest=3.0, step=0.1)
            start.update_all(map(tuple, sequences[rest.start, :before].tolist()))
            possible = start.could_exceed(epsilon, after)
            assert possible or not exceeded[rest].any(), sequences[rest.start, :before]
            hopeless += not possible
    assert hopeless > 0  # else this test could not fail


def happens(result: Mapping[str, Features], pair: Pair, event: Mapping[str, Any]) -> bool:
    return bool({**result[""], **result[pair.name]}.get(event["feature"], -math.inf) >= event["threshold"])


def test_the_bound_is_a_replay_of_the_bets_that_are_recorded() -> None:
    """With what the result says of each round: its pair, its events, and their shares."""
    pairs = shared(3)
    for seed, leak in ((0, 0.9), (1, 0.4)):
        mechanism = Mechanism(pairs, {2: leak}, seed=seed)
        audit, made = played(design(pairs, 300, stop=False), mechanism)
        result = audit.result()
        starts = [item["from_round"] for item in result.details["bets"]]
        assert starts[0] == 0
        assert starts == sorted(set(starts))
        seen: dict[int, list[dict[str, Features]]] = {data: [] for data in range(4)}
        state, bounds = Sequential(delta=0.0, confidence=0.95), []
        for number in range(result.details["rounds"]):
            chosen = [item for item in result.details["bets"] if item["from_round"] <= number][-1]
            (pair,) = [pair for pair in pairs if pair.name == chosen["pair"]]
            sides = pair.data, pair.neighbor
            new = [mechanism(GeneratorRun("test", data, number)) for data in sides]
            shares = [bet["share"] for bet in chosen["bets"]]
            factor = np.full(state.grid.size, 1 - sum(shares))
            assert 0 <= sum(shares) <= 1
            for bet in chosen["bets"]:
                hits = [sum(happens(run, pair, bet) for run in seen[data]) for data in sides]
                rates = [(hit + 0.2) / (len(seen[data]) + 0.4) for hit, data in zip(hits, sides, strict=True)]
                logs = log_bets(np.array(rates[0]), np.array(rates[1]), np.exp(state.grid), 0.0)
                shown = [logs.hit[side] if happens(new[side], pair, bet) else logs.miss[side] for side in (0, 1)]
                factor += bet["share"] * np.exp(shown[0] + shown[1])
            state.bet(np.log(factor))
            for data, output in zip(sides, new, strict=True):
                seen[data].append(output)
            bounds.append(state.epsilon)
        assert result.details["bounds_by_round"] == bounds
        assert result.bounds[0].value == state.epsilon
        assert result.bounds[0].ceiling == state.ceiling(state.rounds)
        assert 2 * state.rounds == len(made)
        (pair,) = [pair for pair in pairs if pair.name == result.details["tested"]["pair"]]
        for rate, data in zip(result.rates, (pair.neighbor, pair.data), strict=True):
            assert rate.hits == sum(happens(run, pair, result.details["tested"]) for run in seen[data])
            assert rate.trials == len(seen[data])


def test_by_halving_the_bound_is_a_replay_of_the_events_that_are_recorded() -> None:
    """With the module's words: the event of each round, and on which data set it happened."""
    pairs = shared(3)
    for seed, leak in ((0, 0.9), (1, 0.4)):
        mechanism = Mechanism(pairs, {2: leak}, seed=seed)
        audit, made = played(design(pairs, 300, stop=False, halving=True), mechanism)
        result = audit.result()
        (pair,) = [pair for pair in pairs if pair.name == result.details["tested"]["pair"]]
        events = result.details["events"]
        starts = [event["from_round"] for event in events]
        assert starts[0] == 0
        assert all(start in (8, 16, 32, 64, 128) for start in starts[1:])
        earlier = [GeneratorRun("pilot", 0, number) for number in range(result.details["pilots_each"])]
        state, hits = Sequential(delta=0.0, confidence=0.95, earlier=len(earlier)), [0, 0]
        bounds = []

        for number in range(result.details["rounds"]):
            event = [item for item in events if item["from_round"] <= number][-1]
            sides = (pair.data, pair.neighbor)
            if event["from_round"] == number:
                seen = [
                    sum(happens(mechanism(run._replace(data=data)), pair, event) for run in earlier) for data in sides
                ]
                state.expect((seen[0], len(earlier)), (seen[1], len(earlier)))
            earlier.append(GeneratorRun("test", 0, number))
            happened = [happens(mechanism(earlier[-1]._replace(data=data)), pair, event) for data in sides]
            state.update(*happened)
            hits = [item + new for item, new in zip(hits, happened, strict=True)]
            bounds.append(state.epsilon)
        assert result.details["bounds_by_round"] == bounds
        assert result.bounds[0].value == state.epsilon
        assert [rate.hits for rate in result.rates] == hits[::-1]
        assert result.bounds[0].ceiling == state.ceiling(state.rounds)
        assert 2 * state.rounds + sum(run.phase == "pilot" for run in made) == len(made)


def test_pilot_runs_do_not_enter_the_bound() -> None:
    """Other pilot features that choose the same pair and event give the same bound; so do the rounds' own features."""
    pairs = shared(2)
    plan, mechanism = design(pairs, 200, stop=False, halving=True), Mechanism(pairs, {1: 0.9})
    audit, made = played(plan, mechanism)
    other = ManyRuns(plan)
    for run in made:
        features = mechanism(run)
        if run.phase == "pilot":  # noise of its own, which tells nothing
            rng = np.random.default_rng([9, run.data, run.number])
            features = {**features, "": {**features[""], "rows": float(rng.integers(100)), "mean": rng.normal()}}
        other.add(run, features)
    first, second = audit.result(), other.result()
    assert first.details["events"] == second.details["events"]
    assert (first.bounds, first.rates, first.details["bounds_by_round"]) == (
        second.bounds,
        second.rates,
        second.details["bounds_by_round"],
    )


def test_the_pair_that_leaks_is_tested_and_the_claim_is_refuted() -> None:
    pairs = shared(6)
    audit, made = played(design(pairs, 200), Mechanism(pairs, {4: 0.95, 0: 0.05}))
    result = audit.result()
    assert result.details["tested"]["pair"] == "pair 3"
    assert result.details["refuted"] is True
    assert result.details["stopped"] == "the claim is refuted"
    assert len(made) < 200
    assert result.bounds[0].private


@pytest.mark.parametrize("lucky", [0, 1])
def test_another_pair_is_tested_if_rounds_show_that_the_first_is_not_it(lucky: int) -> None:
    """In its first three rounds one pair seems to leak, and the other does after its first."""

    class Turned(Mechanism):
        def __call__(self, run: GeneratorRun) -> dict[str, Features]:
            first = run.number < 5
            wrong, right = 2 * lucky, 2 - 2 * lucky
            self._rates = {wrong: float(not first), wrong + 1: 1.0, right: 0.0, right + 1: float(not first)}
            return super().__call__(run)

    audit, made = played(design(apart(2), 200), Turned(apart(2), {}))
    result = audit.result()
    details = result.details
    tested = [run.data // 2 for run in made if run.data % 2]
    assert sorted(tested[:2]) == [0, 1]
    assert tested[2:6] == [lucky] * 4
    assert tested[-5:] == [1 - lucky] * 5
    assert details["tested"]["pair"] == f"pair {1 - lucky}"
    assert details["refuted"]
    others = tested.count(lucky)
    assert f"(neighbours 'pair {1 - lucky}', {others} of {len(tested)} rounds were on others)" in result.conclusion
    assert [rate.trials for rate in result.rates] == [len(tested) - others] * 2
    assert result.multiplicity[0].startswith("2 of 2 pairs of neighbours were tested")


def test_a_pair_without_expected_events_is_tried_and_found() -> None:
    """It shows by a feature that nobody expected, beside one that shows nothing."""
    pairs = (Pair("named", 0, 1, (EXPECTED,)), Pair("unnamed", 2, 3))

    def run(item: GeneratorRun) -> dict[str, Features]:
        made = Mechanism(pairs, {})(item)
        return {**made, "": {**made[""], "rows": 100.0 + (item.data == 3)}}

    audit = ManyRuns(design(pairs, 200))
    while wanted := audit.wanted():
        for item in wanted:
            audit.add(item, run(item))
    details = audit.result().details
    assert (details["refuted"], details["tested"]["pair"]) == (True, "unnamed")


@pytest.mark.parametrize("count", [5, 9, 12])
def test_failures_are_not_bet_on_unless_they_are_asked_for(count: int) -> None:
    """A generator that refuses the records of many pairs, which share their D, is not refuted for that."""
    pairs = shared(count)
    fails = dict.fromkeys(range(1, count), 1.0)
    audit, _ = played(design(pairs, 120, stop=False), Mechanism(pairs, {}, fails))
    result = audit.result()
    assert result.details["failing"] == [pair.name for pair in pairs[: count - 1]]
    assert result.bounds[0].value == 0
    asked, _ = played(design(pairs, 120, failures=True), Mechanism(pairs, {}, fails))
    assert asked.result().details["refuted"]


def test_an_audit_by_halving_that_stops_at_a_choice_says_the_same_when_it_is_bounded() -> None:
    """At eight rounds an event is chosen anew; if the claim is refuted by then, it is not."""
    pairs = shared(1)
    for claim in np.arange(0.9, 1.6, 0.05).tolist():
        plan = design(pairs, 60, claim=PureDP(claim), halving=True)
        audit, made = played(plan, Mechanism(pairs, {0: 0.0, 1: 1.0}))
        again = ManyRuns(dataclasses.replace(plan, stop=False))
        for run in made:
            again.add(run, Mechanism(pairs, {0: 0.0, 1: 1.0})(run))
        assert audit.result().details["events"] == again.result().details["events"]
        assert audit.result().attack == again.result().attack


def test_pairs_for_which_the_test_ended_too_soon_had_not_too_few_runs() -> None:
    pairs = shared(6)
    result = played(design(pairs, 200), Mechanism(pairs, {0: 0.0, 1: 1.0}))[0].result()
    assert result.details["refuted"]
    assert result.details["untried"] == []


def test_looks_get_rarer_so_that_long_audits_are_not_slow() -> None:
    pairs = shared(1)
    audit, _ = played(design(pairs, 2000, stop=False), Mechanism(pairs, {}))
    starts = [item["from_round"] for item in audit.result().details["bets"]]
    assert starts[:9] == [0, 1, 2, 3, 4, 6, 8, 16, 24]
    assert len(starts) < 50


def test_the_search_ends_when_a_pair_shows_more_than_the_claim() -> None:
    """By then its estimate is above the claim; a larger claim takes more pilot runs, and no claim takes most."""
    pairs = shared(6)
    used = []
    for claim in (PureDP(0.2), PureDP(1.0), PureDP(2.0), None):
        plan = design(pairs, 300, claim=claim, stop=False, halving=True)
        audit, _ = played(plan, Mechanism(pairs, {4: 1.0, 0: 0.0}))
        details = audit.result().details
        (chosen,) = [item for item in details["search"] if item["pair"] == "pair 3"]
        assert details["tested"]["pair"] == "pair 3"
        assert claim is None or claim.epsilon == 2.0 or chosen["estimate"] > claim.epsilon
        used.append(details["runs"] - 2 * details["rounds"])
        assert details["runs"] in (299, 300)
    assert used == sorted(used)
    assert used[0] < 40 < used[-1] <= 120


@pytest.mark.parametrize("failures", [False, True])
def test_a_pair_on_which_the_generator_fails_is_named_and_tested_only_if_asked(failures: bool) -> None:
    pairs = shared(3)
    audit, _ = played(design(pairs, 120, failures=failures), Mechanism(pairs, {}, {2: 1.0}))
    details = audit.result().details
    if failures:
        assert details["failing"] == []
        assert (details["tested"]["pair"], details["refuted"]) == ("pair 1", True)
    else:
        assert details["failing"] == ["pair 1"]
        assert details["tested"]["pair"] != "pair 1"


@pytest.mark.parametrize("fails", [{0: 1.0}, {1: 1.0, 2: 1.0, 3: 1.0}], ids=["D", "every D′"])
def test_a_generator_that_fails_everywhere_gives_no_bound(fails: dict[int, float]) -> None:
    pairs = shared(3)
    for halving in (False, True):
        audit, made = played(design(pairs, halving=halving), Mechanism(pairs, {}, fails))
        result = audit.result()
        assert not result.bounds
        assert "failed in all runs on D, or in all on D′, of every pair that was tried" in result.conclusion
        assert result.details["exhausted"]
        assert result.details["failing"] == [item["pair"] for item in result.details["search"]]
        assert halving is ({run.phase for run in made} == {"pilot"})
        assert len(made) <= 40


@pytest.mark.slow
def test_a_data_set_on_which_some_runs_fail_does_not_spoil_its_pairs() -> None:
    """Ten pairs share a D on which each fifth run fails, and every D′ shows the record. Of 200 searches 1.6 are without
    a pair on average, when all of three runs on D fail; 9 or more have probability below 1e-4 (binomial)."""
    pairs = shared(10)
    rates = {0: 0.0, **dict.fromkeys(range(1, 11), 1.0)}
    lost = 0
    for seed in range(200):
        result = played(design(pairs, 60, halving=True), Mechanism(pairs, rates, {0: 0.2}, seed))[0].result()
        lost += bool(result.details["exhausted"])
        for item in result.details["search"]:
            assert item["failing_on"] in (None, "D")
            assert item["failing_on"] is None or item["runs_on_data"] >= 3
    assert lost < 9


def test_pairs_that_were_dropped_are_taken_if_those_that_were_left_fail() -> None:
    """Halving keeps the pair that shows most at first; it then fails on every further run."""

    class Later(Mechanism):
        def __call__(self, run: GeneratorRun) -> dict[str, Features]:
            self._fails = {2: 1.0} if run.number else {}
            return super().__call__(run)

    pairs = apart(2)
    audit, _ = played(design(pairs, 60, claim=None, halving=True), Later(pairs, {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}))
    assert audit.result().details["tested"]["pair"] == "pair 0"


def test_the_power_against_the_claim_is_that_of_the_claim() -> None:
    """Also of a claim of ε = 0, and no leak is as large as ε = ∞."""
    for epsilon, leaks in ((0.0, ["0", "1", "2", "4"]), (1.0, ["1", "2", "4"]), (1e308, ["1"])):
        result = power(design(shared(1), 40, claim=PureDP(epsilon)), 10, 5)
        words = [re.search(r"ε = ([\d.]+)", item.leak) for item in result if "allows" in item.leak]
        assert [match and match[1] for match in words] == leaks
        assert ["false alarm" in item.leak for item in result] == [True] + [False] * (len(result) - 1)


def test_before_the_first_round_there_is_no_bound() -> None:
    result = ManyRuns(design(shared(2))).result()
    assert not result.bounds
    assert "nothing was tested" in result.conclusion
    assert result.details["runs"] == 0


def test_an_event_that_was_expected_is_preferred_to_one_that_chance_made() -> None:
    rng = np.random.default_rng(0)
    out = [{"seen": 0.0, **{f"noise {index}": float(rng.normal()) for index in range(100)}} for _ in range(6)]
    inside = [{"seen": 1.0, **{f"noise {index}": float(rng.normal()) for index in range(100)}} for _ in range(6)]
    value, event = choose_event(out, inside, [EXPECTED], 0.0)
    assert event == EXPECTED
    tail = 1 - 0.9  # by hand: all of 6, and none of 6, at an error of 0.1 each
    assert value == pytest.approx(math.log(tail ** (1 / 6)) - math.log(1 - tail ** (1 / 6)), rel=1e-9)


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([-math.inf, -1e308, 0.0, 1.0, 1e308])), min_size=2, max_size=12)
)
@examples(27, 80)
def test_the_event_is_the_best_of_all_thresholds(drawn: list[tuple[bool, float]]) -> None:
    """By trying all of them; one feature, so that the error is not divided."""
    sides: tuple[list[Features], list[Features]] = ([], [])
    for side, value in (*drawn, (False, 0.0), (True, 1.0)):
        sides[side].append({} if math.isinf(value) else {"x": value})
    result, event = choose_event(*sides, (), 0.0)

    def limits(hits: int, trials: int) -> tuple[float, float]:
        low = 0.0 if hits == 0 else float(stats.beta.ppf(0.1, hits, trials - hits + 1))
        return low, 1.0 if hits == trials else float(stats.beta.ppf(0.9, hits + 1, trials - hits))

    def estimate(threshold: float) -> float:
        counts = [sum(item.get("x", -math.inf) >= threshold for item in side) for side in sides]
        best = -math.inf
        for a, b in ((0, 1), (1, 0)):
            for flip in (False, True):
                hits = [len(sides[side]) - counts[side] if flip else counts[side] for side in (a, b)]
                low, high = limits(hits[0], len(sides[a]))[0], limits(hits[1], len(sides[b]))[1]
                best = max(best, math.log(max(low, 1e-9)) - math.log(high))
        return best

    values = sorted({item.get("x", -math.inf) for side in sides for item in side})
    assert result == pytest.approx(max(map(estimate, values[1:])), abs=1e-9)
    assert result == pytest.approx(estimate(event.threshold), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claim", "rates"),
    [
        (PureDP(1.0), (0.5, 0.5)),
        (PureDP(1.0), (0.02, 0.5)),
        (PureDP(0.5), (0.1, 0.9)),
        (ApproxDP(1.0, 0.01), (0.0, 0.2)),
        (None, (0.4, 0.6)),
    ],
)
def test_audits_refute_as_often_as_stated(claim: PureDP | ApproxDP | None, rates: tuple[float, float]) -> None:
    """200 real tests of a pair whose expected event has these rates, beside the simulation that `power` makes.

    Both counts are binomial. If the chances are equal, a two-sided Fisher test has a p-value below 1e-4 with
    probability at most 1e-4 a case.
    """
    pairs = (Pair("pair", 0, 1, (EXPECTED,)),)
    delta = claim.delta if isinstance(claim, ApproxDP) else 0.0
    plan = design(pairs, 60, claim=claim, delta=delta, stop=False)
    stated = chance_to_refute(plan, plan.usual_rounds, 0, rates)
    refuted, repetitions = 0, 200
    for seed in range(repetitions):
        rng, audit = np.random.default_rng([7, seed]), ManyRuns(plan)
        while wanted := audit.wanted(8):
            for run in wanted:
                audit.add(run, {"": {}, "pair": {"seen": float(rng.random() < rates[run.data])}})
        result = audit.result()
        assert result.details["rounds"] == plan.most_rounds
        refuted += result.bounds[0].value > plan.limit
    table = [[refuted, repetitions - refuted], [round(stated * REPETITIONS), REPETITIONS - round(stated * REPETITIONS)]]
    assert stats.fisher_exact(np.array(table)).pvalue > 1e-4, table


@pytest.mark.parametrize("halving", [False, True])
def test_power_is_that_of_the_test_that_is_planned(halving: bool) -> None:
    plan = design(shared(2), 300, halving=halving)
    result = power(plan, plan.usual_rounds, many_runs_halving.usual_pilots(plan))
    chances = [item.chance for item in result]
    assert "a false alarm" in result[0].leak
    assert chances[0] <= stats.binom.isf(1e-4, REPETITIONS, 0.05) / REPETITIONS
    assert chances[:3] == sorted(chances[:3])
    assert chances[3:] == sorted(chances[3:])
    assert chances[-1] == 1.0
    assert all(0 <= item.median <= 8 for item in result)


@pytest.mark.parametrize("halving", [False, True])
@pytest.mark.parametrize("cut", [0, 7, None])
def test_power_and_ceiling_are_stated_for_the_rounds_that_an_audit_has(cut: int | None, halving: bool) -> None:
    """One that somebody stops early must not claim the power of all the rounds that were planned."""
    pairs = shared(1)
    plan, mechanism = design(pairs, stop=False, halving=halving), Mechanism(pairs, {})
    whole, made = played(plan, mechanism)
    most = whole.result().details["most_rounds"]
    audit = ManyRuns(plan)
    for run in made:
        if run.phase == "pilot" or cut is None or run.number < cut:
            audit.add(run, mechanism(run))
    result, rounds = audit.result(), most if cut is None else cut
    if not (halving or rounds):
        assert "nothing was tested" in result.conclusion
        return
    assert result.details["rounds"] == rounds
    pilots = result.details["pilots_each"]
    assert result.details["detectable"] == detectable_leak(plan, rounds, pilots).to_json()
    assert (
        result.bounds[0].ceiling == plan.state(pilots).ceiling(rounds) <= plan.state(plan.pilots // 2).ceiling(rounds)
    )
    assert ("nothing follows for the claim" in result.conclusion) == (plan.state(pilots).ceiling(rounds) <= 1.0)
    assert result.details["stopped"] == ("all planned runs were made" if cut is None else "more runs are planned")


def test_an_audit_without_hope_states_what_all_its_rounds_could_have_shown() -> None:
    """Also if a few rounds were made besides, as several workers do."""
    pairs = shared(1)
    plan, mechanism = design(pairs), Mechanism(pairs, {1: 0.0})
    audit, made = played(plan, mechanism)
    result = audit.result()
    assert result.details["rounds"] < result.details["most_rounds"]
    later = ManyRuns(design(pairs, stop=False))
    for run in (*made, *(GeneratorRun("test", data, result.details["rounds"]) for data in (0, 1))):
        later.add(run, mechanism(run))
    for item in (result, later.result()):
        assert item.details["stopped"] == "no outcome of the other runs could refute the claim"
        rounds, pilots = item.details["most_rounds"], item.details["pilots_each"]
        assert item.bounds[0].ceiling == plan.state(pilots).ceiling(rounds)
        assert item.details["detectable"] == detectable_leak(plan, rounds, pilots).to_json()


@pytest.mark.parametrize("constant", [True, False])
def test_outputs_that_are_always_alike_are_remarked(constant: bool) -> None:
    pairs = shared(1)
    mechanism = Mechanism(pairs, {0: 0.0, 1: 1.0})

    def alike(run: GeneratorRun) -> dict[str, Features]:
        return mechanism(GeneratorRun("test", run.data, 0)) if constant else mechanism(run)

    audit = ManyRuns(design(pairs))
    while wanted := audit.wanted():
        for run in wanted:
            audit.add(run, alike(run))
    result = audit.result()
    assert result.details["refuted"]
    assert ("has a fixed seed" in result.conclusion) == constant == bool(result.details["notes"])


@pytest.mark.parametrize(
    "wrong",
    [{"pairs": ()}, {"pairs": (*shared(1), *shared(1))}, {"runs": 19}, {"confidence": 1.0}, {"delta": 1.0}],
)
def test_impossible_designs_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"needs|must"):
        ManyRunsDesign(**{"pairs": shared(2), "runs": 20, **wrong})


@pytest.mark.parametrize("confidence", [0.9, 0.975, 0.999])
def test_bounds_at_another_confidence_are_those_of_an_audit_that_was_planned_so(confidence: float) -> None:
    """The same runs, added to an audit of that confidence; stopping does not matter, since the bound may be read at any
    time."""
    pairs = shared(2)
    audit, made = played(design(pairs, stop=False), Mechanism(pairs, LEAKS["one"]))
    other = ManyRuns(design(pairs, stop=False, confidence=confidence))
    for run in made:
        other.add(run, Mechanism(pairs, LEAKS["one"])(run))
    assert audit.bounds(confidence) == other.result().bounds
    assert audit.bounds(0.95) == audit.result().bounds
