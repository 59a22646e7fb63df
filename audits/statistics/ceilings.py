"""Ceilings: the largest ε that a test of a given size can show, known before the test is run.

A ceiling is the value of the statistic on perfect counts, and every bound carries it. That no other counts give a
larger value is proven

- for error rates and scores: each limit of a rate increases with every error;
- for one run with the tight rule, whose p-value is the largest probability of *at least* v right guesses; with the
  adaptive rule, since Σ_{k ≥ v} w_k/w_v falls as v grows; and in `one_run_f_dp` and `sequential`.

For the published rule, the tests compare all counts of small designs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from dpassay.audits.statistics.binomial import epsilon_clopper_pearson, mu_clopper_pearson
from dpassay.audits.statistics.counts import count
from dpassay.audits.statistics.one_run import Rule, epsilon_one_run
from dpassay.audits.statistics.one_run_f_dp import Family, epsilon_one_run_f_dp
from dpassay.audits.statistics.score_thresholds import Threshold, epsilon_from_scores
from dpassay.audits.statistics.sequential import Sequential
from dpassay.base import validate


@dataclass(frozen=True, slots=True)
class OneRun:
    """The size of `epsilon_one_run`, or of `epsilon_one_run_f_dp` if `rule` is a family.

    Attributes:
        m: number of candidates.
        guesses: r, at most m.
        rule: how δ is accounted for, or the family.
    """

    m: int
    guesses: int
    rule: Rule | Family = "published"


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """The size of `epsilon_clopper_pearson` or `mu_clopper_pearson`.

    Attributes:
        runs_in: n₁, number of runs with the unit.
        runs_out: n₀, number of runs without it.
        quantity: the bounded quantity.
    """

    runs_in: int
    runs_out: int
    quantity: Literal["epsilon", "mu"] = "epsilon"


@dataclass(frozen=True, slots=True)
class Scores:
    """The size of `epsilon_from_scores`.

    Attributes:
        runs_in: n₁, number of runs with the unit, one score each.
        runs_out: n₀, number of runs without it.
        threshold: how the threshold is chosen; None for the default.
    """

    runs_in: int
    runs_out: int
    threshold: Threshold | None = None


@dataclass(frozen=True, slots=True)
class Rounds:
    """The size of `Sequential`.

    Attributes:
        rounds: number of rounds.
        largest, step: of its grid.
    """

    rounds: int
    largest: float = 16.0
    step: float = 0.01


Test: TypeAlias = OneRun | ErrorRates | Scores | Rounds


def ceiling(test: Test, *, confidence: float, delta: float = 0.0) -> float:
    """The largest ε (or μ, if the test bounds μ) that a test of this size can show, with every guess right.

    Args:
        test: a statistic and its size.
        confidence: 1 − β, in (0, 1).
        delta: δ at which ε is bounded; 0 for μ.

    Raises:
        ValueError: if the statistic does not accept these sizes or probabilities.
    """
    match test:
        case OneRun(m, guesses, rule):
            if rule == "gdp" or rule == "approx_dp":
                return epsilon_one_run_f_dp(m, guesses, guesses, family=rule, delta=delta, confidence=confidence).value
            return epsilon_one_run(m, guesses, guesses, delta=delta, confidence=confidence, rule=rule).value
        case ErrorRates(runs_in, runs_out, "mu"):
            if delta:
                raise ValueError(f"a bound on mu has no delta; leave delta at 0, not {delta!r}")
            return mu_clopper_pearson(runs_in, 0, 0, runs_out, confidence=confidence).value
        case ErrorRates(runs_in, runs_out, quantity):
            validate.one_of(("epsilon", "mu"), quantity=quantity)
            return epsilon_clopper_pearson(runs_in, 0, 0, runs_out, delta=delta, confidence=confidence).value
        case Scores(runs_in, runs_out, threshold):
            inside, outside = (
                np.full(size, score)
                for size, score in ((count(1, runs_in=runs_in), 1.0), (count(1, runs_out=runs_out), 0.0))
            )
            bound = epsilon_from_scores(inside, outside, delta=delta, confidence=confidence, threshold=threshold)
            assert bound.ceiling is not None
            return bound.ceiling
        case Rounds(rounds, largest, step):
            audit = Sequential(delta=delta, confidence=confidence, largest=largest, step=step)
            return audit.ceiling(rounds)
        case _:
            raise ValueError(f"test must be a OneRun, ErrorRates, Scores or Rounds, not {test!r}")
