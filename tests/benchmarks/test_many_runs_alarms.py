"""False alarms of whole audits by many runs, search included."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import many_runs_alarms as alarms
import numpy as np
import pytest
import seeded_bugs as bugs
from scipy import stats

from dpassay.accounting import PureDP
from dpassay.auditing.many_runs.run import audit_function


def refuted(case: bugs.Case, claim: float, runs: int, repetitions: int, *, confidence: float = 0.95) -> int:
    """How many of several audits refute a claim."""
    outcome = 0
    for seed in np.random.SeedSequence([1, runs]).generate_state(repetitions).tolist():
        result = audit_function(
            case.generate,
            alarms.ROWS,
            claim=PureDP(claim),
            runs=runs,
            seed=seed,
            adjacency=case.adjacency,
            confidence=confidence,
        )
        outcome += bool(result.details["refuted"])
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize("case", bugs.RIGHT, ids=lambda case: case.name)
def test_a_right_generator_is_refuted_no_more_often_than_stated(case: bugs.Case) -> None:
    """25 audits of 60 runs each at the boundary, at β = 20%; valid audits fail this with probability below 1e-4."""
    assert refuted(case, bugs.EPSILON, 60, 25, confidence=0.8) <= stats.binom.isf(1e-4, 25, 0.2)


def test_that_test_could_fail() -> None:
    """The control, without noise, is refuted more often than a right generator may be."""
    assert refuted(bugs.CONTROL, bugs.EPSILON, 60, 18, confidence=0.8) > stats.binom.isf(1e-4, 25, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("case", bugs.RIGHT, ids=lambda case: case.name)
@pytest.mark.parametrize(("runs", "repetitions"), [(50, 400), (200, 100)])
def test_right_generators_over_many_repetitions(case: bugs.Case, runs: int, repetitions: int) -> None:
    """At β = 5%; valid audits fail each of these with probability below 1e-4."""
    assert refuted(case, bugs.EPSILON, runs, repetitions) <= stats.binom.isf(1e-4, repetitions, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95])
def test_randomised_response_at_the_boundary(confidence: float) -> None:
    """The event with most evidence, ε = 1 exactly, on the pair that shows it: 300 audits of 100 runs at each β.

    Valid audits fail each with probability below 1e-4. At ε = 2 more are refuted, so this could fail.
    """
    for epsilon in (1.0, 3.0):
        generator = alarms.Response(1 / (1 + np.exp(epsilon)), 1 / (1 + np.exp(-epsilon)))
        result = sum(
            bool(
                audit_function(
                    generator,
                    alarms.ROWS,
                    claim=PureDP(1.0),
                    runs=100,
                    seed=seed,
                    confidence=confidence,
                    neighbors=["rare_category"],
                ).details["refuted"]
            )
            for seed in range(300)
        )
        limit = stats.binom.isf(1e-4, 300, 1 - confidence)
        assert result <= limit if epsilon == 1.0 else result > limit or confidence == 0.5


def test_a_row_and_the_table_of_the_script() -> None:
    with ProcessPoolExecutor(1) as executor:
        row = alarms.row(bugs.RIGHT[0], 20, 3, 0, executor)
    assert (row["alarms"], row["repetitions"], row["p_value"]) == (0, 3, 1.0)
    assert row["interval"] == [0.0, pytest.approx(1 - 0.025 ** (1 / 3))]
    assert "| right for add remove | 20 | 0 of 3 | 0.00% (0.00–70.76) | 1 |" in alarms.table([row])


def test_one_in_twenty_runs_is_exact_and_says_so() -> None:
    """Of 2000 seeds; a binomial law leaves the limits with probability below 1e-4."""
    exact = [
        table
        for seed in range(2000)
        if {"city": "exact", "age": None} in (table := alarms.right_with_delta(bugs.USUAL, seed))
    ]
    assert stats.binom.ppf(5e-5, 2000, alarms.DELTA) <= len(exact) <= stats.binom.isf(5e-5, 2000, alarms.DELTA)
    assert {bugs.counts(table[:-1]) for table in exact} == {bugs.counts(bugs.no_noise(bugs.USUAL, 0))}


def test_finished_audits_are_kept_and_not_made_again(tmp_path: Path) -> None:
    """A result is read from the file, until the code of audits is another; a line that was cut off is dropped."""
    path = tmp_path / "a.pieces.jsonl"
    with ThreadPoolExecutor(1) as threads:
        assert alarms.KeptResults(threads, path).submit(divmod, 7, 2).result() == (3, 1)
        threads.submit(int).result()  # the callback of the first has returned
        (line,) = path.read_text().splitlines()
        changed = json.loads(line) | {"result": "kept"}
        path.write_text(json.dumps(changed) + "\n" + line[:20])
        assert alarms.KeptResults(threads, path).submit(divmod, 7, 2).result() == "kept"
        assert alarms.KeptResults(threads, path).submit(divmod, 7, 3).result() == (2, 1)
        threads.submit(int).result()
        assert len(path.read_text().splitlines()) == 2
        path.write_text(json.dumps(changed | {"code": "other"}) + "\n")
        assert alarms.KeptResults(threads, path).submit(divmod, 7, 2).result() == (3, 1)
