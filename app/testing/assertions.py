"""Tests of mechanisms, including your own. Runs made here use seeded noise and must not be released.

- `assert_never_exceeds`: runs a mechanism many times on two neighbours, and fails if the lower bound on its privacy
  loss exceeds the claim. `docs/testing.md` has examples, `dpassay.pytest_plugin` a fixture.
- `assert_events_hold`: records a mechanism and replays it on neighbours, and fails if a query has a larger sensitivity
  than its event declares, or if data are read that no event covers. `docs/measurements/known-bugs.md` has an example.
- `recorded_run`: runs the generator of a claim with seeded noise, so that the run can be repeated.
"""

from __future__ import annotations

import bisect
import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.guarantees import Guarantee
from dpassay.attacks.black_box.distinguishing import plain
from dpassay.attacks.black_box.repetitions import repeat
from dpassay.audits.games.distinguishing import distinguishing_audit
from dpassay.audits.games.distinguishing_choice import DetectionLimit, detection_limit
from dpassay.audits.games.replay.record_replay import assert_events_hold as assert_events_hold
from dpassay.audits.implications import describe, describe_limit, implied_limit
from dpassay.audits.result import AuditResult
from dpassay.audits.statistics.score_bets import DetectableByBets
from dpassay.base import validate
from dpassay.base.number_format import format_ceiling, format_confidence, format_lower, format_number, format_upper
from dpassay.mechanisms.compute.workers import executor
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.testing.mechanism_identity import name_of, settings

if TYPE_CHECKING:  # not loaded by test-suites that need neither models nor claims
    from dpassay.base.progress import Step
    from dpassay.claims.base import Claim
    from dpassay.generators.base import FinishedRun

RUNS = 2000
"""Runs on each data set; at the default confidence they can show ε = 5.5."""
CONFIDENCE = 1 - 1e-6
"""A mechanism that meets its claim fails an assertion with probability at most one in a million."""

_LOOK_AT = {
    Adjacency.ADD_REMOVE: "one record more or less",
    Adjacency.REPLACE_ONE: "one record exchanged (for a sum or a mean, twice as much as one record more or less)",
    Adjacency.ZERO_OUT: "one record exchanged for the null record",
    Adjacency.SECRET: "another value of the secret, at all its places,",
}


class SeededSource(Recorded):
    """The randomness of a run: a `dpassay.mechanisms.primitives.randomness.Source`, with a NumPy generator as well."""

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self._seed = seed
        super().__init__(int.from_bytes(seed.generate_state(4).tobytes(), "little"))

    @functools.cached_property
    def generator(self) -> np.random.Generator:
        """For mechanisms that take a `numpy.random.Generator`: the same one in the whole run."""
        return np.random.default_rng(self._seed.spawn(1)[0])


Mechanism = Callable[[Any, SeededSource], Any]


@dataclass(frozen=True, slots=True)
class ShownBound(Bound):
    """A lower bound from runs of a mechanism.

    Attributes:
        detectable: the smallest leaks that would have refuted the claim with about 50 % power.
    """

    detectable: DetectableByBets | None = None


def assert_never_exceeds(
    mechanism: Mechanism,
    claim: Guarantee,
    *,
    data: Any = None,
    neighbor: Any = None,
    pairs: Sequence[tuple[Any, Any]] | None = None,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | str | None = None,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    score: Callable[[Any], float] | None = None,
    seed: int = 0,
    workers: int = 1,
    cluster: str | None = None,
    folder: Path | str | None = None,
    progress: Step | None = None,
) -> tuple[ShownBound, ...]:
    """Runs a mechanism on neighbours, and fails if a lower bound on its privacy loss exceeds the claim.

    Each run draws its randomness from its own `SeededSource`. If the mechanism uses no other randomness, every run of a
    test-suite gives the same result. A mechanism may use the operating system's entropy instead; then each run of the
    suite is a new sample, and `confidence` holds for each.

    Passing is no proof: the bound is about these data, and leaks smaller than what the result calls `detectable` are
    mostly missed.

    Args:
        mechanism: called as ``mechanism(data, source)``; returns a number, an array, a text, or lists of them. It must
            not change its data; lists and arrays are checked after the first run.
            ``lambda data, source: mine(data, rng=source.generator)`` adapts one that takes a NumPy generator.
        claim: a guarantee, such as ``PureDP(1.0)`` or ``ApproxDP(1.0, 1e-5)``.
        data, neighbor: two data sets that differ in one unit; best are those where this unit changes the output most.
        pairs: several such pairs instead, ``[(data, neighbor), …]``, each tested at 1 − (1 − confidence)/len(pairs).
        adjacency: the neighbouring relation of the claim. Lists and arrays of records are checked to be neighbours.
        unit: what the claim protects; a record by default.
        runs: on each data set. A tenth of them is for training.
        confidence: with which all bounds hold jointly.
        score: maps an output to a number that is larger for the neighbor; chosen before the runs, best as the
            log-likelihood ratio, or a function that grows with it. By default scores are fitted on earlier runs. With
            it, outputs may be of any type.
        seed: another seed is another sample.
        workers: number of processes; more than one needs the extra ``cluster``.
        cluster: address of a scheduler of `dask.distributed`, such as ``tcp://10.0.0.1:8786``, whose workers run the
            mechanism; they must be able to import it.
        folder: keeps outputs, so that an interrupted test resumes. It is refused if it was made with other data, other
            arguments of the mechanism, or another version of the file that defines it. After other changes, delete it.
        progress: called with the number of runs done and in all.

    Returns:
        For each pair, a lower bound on ε with its ceiling, and the leaks that would have been found.

    Raises:
        AssertionError: if a bound exceeds the claim; the message says by how much, and what to look at.
        ValueError: if so few runs cannot refute the claim, claims of this type are not supported (ex-post DP, secret
            protection), the data sets are not neighbours, or the mechanism changes them.
    """
    __tracebackhide__ = True  # pytest then shows the test and the message
    relation, unit, pairs = Adjacency(adjacency), Unit.of_text(unit), _pairs(data, neighbor, pairs)
    each = 1 - (1 - validate.open_probability(confidence=confidence)) / len(pairs)
    _check_can_refute(claim, runs, each)
    for pair in pairs:
        _check_neighbors(*pair, relation, unit)
    with executor(None if workers == 1 else workers, cluster) as do:
        outputs = repeat(
            functools.partial(_run, mechanism, tuple(pairs), score),
            runs * len(pairs),
            seed=seed,
            executor=do,
            folder=folder,
            progress=progress,
            settings=settings(mechanism, pairs, score) if folder is not None else None,
        )
    audit = functools.partial(
        distinguishing_audit,
        guarantee=claim,
        adjacency=relation,
        unit=unit,
        confidence=each,
        score=float if score is not None else None,
        statistic="score_bets",
    )
    results = [audit(*zip(*outputs[index :: len(pairs)], strict=True)) for index in range(len(pairs))]
    failed = [index for index, result in enumerate(results) if result.details["refuted"]]
    if failed:
        worst = max(failed, key=lambda index: results[index].bounds[0].value - results[index].details["limit"])
        which = f"number {worst} of {len(pairs)}, counted from 0, the worst of {len(failed)} that failed"
        again = f"seed={seed}, runs={runs}; the same runs if all randomness comes from `source`"
        raise AssertionError(_message(mechanism, claim, results[worst], which if len(pairs) > 1 else "", again))
    return tuple(_shown(result) for result in results)


def _shown(result: AuditResult) -> ShownBound:
    bound, found = result.bounds[0], result.details["detectable"]
    detectable = DetectableByBets(found["claim"], found["epsilon"], found["noise"])
    return ShownBound(**{item.name: getattr(bound, item.name) for item in fields(bound)}, detectable=detectable)


def _run(
    mechanism: Mechanism,
    pairs: tuple[tuple[Any, Any], ...],
    score: Callable[[Any], float] | None,
    index: int,
    seed: np.random.SeedSequence,
) -> list[Any]:
    """The output, or its score, on both data sets of a pair, with independent randomness."""
    outputs = []
    for data, own in zip(pairs[index % len(pairs)], seed.spawn(2), strict=True):
        before = _copied(data) if index < len(pairs) else None
        output = mechanism(data, SeededSource(own))
        if before is not None and not len(before) == len(data) == _common_prefix(before, data):
            raise ValueError(
                f"{name_of(mechanism)} changes its data, so that later runs have others; give it a copy, as in "
                "lambda data, source: mechanism(list(data), source)"
            )
        outputs.append(plain(output) if score is None else float(score(output)))
    return outputs


def _copied(data: Any) -> Any:
    """A copy of a list or an array, to compare with later; None if no copy compares equal."""
    if not isinstance(data, list | np.ndarray):
        return None
    try:
        copied = copy.deepcopy(data)
        return copied if len(data) == _common_prefix(copied, data) else None
    except Exception:  # 0 dimensions, records that cannot be copied or compared
        return None


def _pairs(data: Any, neighbor: Any, pairs: Sequence[tuple[Any, Any]] | None) -> Sequence[tuple[Any, Any]]:
    if (pairs is None) == (data is None and neighbor is None):
        raise ValueError("give either data and neighbor, or pairs")
    if pairs is None:
        return [(data, neighbor)]
    if len(pairs) == 0:
        raise ValueError("pairs needs at least one pair of data sets")
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError("pairs must be [(data, neighbor), …], with two data sets in each")
    return pairs


def _check_can_refute(claim: Guarantee, runs: int, confidence: float) -> None:
    """Raises `ValueError` unless so many runs can refute the claim."""
    most = _limit(claim, runs, confidence)
    if most.can_refute:
        return
    enough = runs
    while not _limit(claim, enough, confidence).can_refute and enough < 10**12:
        enough *= 2
    enough = bisect.bisect_left(
        range(enough), True, enough // 2 + 1, key=lambda n: _limit(claim, n, confidence).can_refute
    )
    advice = (
        f"take more than {enough} runs" if enough < 10**12 else "no number of runs is enough; test smaller parts of it"
    )
    raise ValueError(
        f"{runs} runs can show at most ε = {format_upper(most.ceiling)}, and {describe(claim)} allows "
        f"{describe_limit(claim, most.limit)}: this test could not fail; {advice}"
    )


def _limit(claim: Guarantee, runs: int, confidence: float) -> DetectionLimit:
    return detection_limit(claim, runs, confidence=confidence, statistic="score_bets")


def _check_neighbors(data: Any, neighbor: Any, adjacency: Adjacency, unit: Unit) -> None:
    """Checks that lists and arrays of records differ in one record between a common beginning and a common end."""
    if not isinstance(data, list | np.ndarray) or type(data) is not type(neighbor) or unit != Unit():
        return
    try:
        begin = _common_prefix(data, neighbor)
        rest, other = len(data) - begin, len(neighbor) - begin
        end = _common_prefix(data[begin:][::-1], neighbor[begin:][::-1])
    except (TypeError, ValueError):  # records that cannot be compared
        return
    left = (rest - end, other - end)
    allowed = {Adjacency.ADD_REMOVE: {(0, 1), (1, 0)}, Adjacency.REPLACE_ONE: {(1, 1)}, Adjacency.ZERO_OUT: {(1, 1)}}
    if adjacency in allowed and left not in allowed[adjacency]:
        raise ValueError(
            f"data and neighbor are not neighbours under {adjacency}: between their common beginning and end, "
            f"{left[0]} and {left[1]} records are left; give the other records in the same order"
        )


def _common_prefix(item: Any, other: Any) -> int:
    """The number of equal records at the beginning."""
    count = 0
    for a, b in zip(item, other, strict=False):
        if isinstance(a, np.ndarray | np.floating):
            same = np.array_equal(a, b, equal_nan=True)
        else:
            same = a is b or bool(a == b)
        if not same:
            break
        count += 1
    return count


def describe_bound(mechanism: Mechanism, claim: Guarantee, bound: Bound) -> str:
    """The bound of an assertion that passed, in one line."""
    half = f". {bound.detectable.sentence()}" if isinstance(bound, ShownBound) and bound.detectable else ""
    at = f" at δ = {format_number(bound.delta)}" if bound.delta else ""
    return (
        f"{name_of(mechanism)} was shown to have ε ≥ {format_lower(bound.value)}{at}, and up to "
        f"{format_ceiling(bound.ceiling, bound.value)} could have been; the claim allows "
        f"{describe_limit(claim, implied_limit(claim, bound))}{half}"
    )


def _message(mechanism: Mechanism, claim: Guarantee, result: AuditResult, which: str, again: str) -> str:
    bound, (hits, alarms) = result.bounds[0], result.rates
    at = f" at δ = {format_number(bound.delta)}" if bound.delta else ""
    confidence = format_confidence(bound.confidence or 0.0)
    lines = [
        f"{name_of(mechanism)} leaks more than it claims, {describe(claim)} ({bound.adjacency}, unit {bound.unit})",
        f"shown:   ε ≥ {format_lower(bound.value)}{at} with confidence {confidence}; the claim allows "
        f"{describe_limit(claim, result.details['limit'])}",
        f"counts:  {result.details['score']} points to the neighbor in {hits.hits} of {hits.trials} runs on "
        f"the neighbor and in {alarms.hits} of {alarms.trials} on the data",
        f"look at: whether the noise covers the largest change that {_LOOK_AT[bound.adjacency]} can make; what depends "
        "on the data without noise (a count, a clipping range, a seed); whether the two data sets are neighbours",
    ]
    lines += [f"note:    {note}" for note in result.details["notes"]]
    if which:
        lines.append(f"pair:    {which}")
    return "\n".join([*lines, f"again:   {again}"])


def recorded_run(claim: Claim, output: Path, *, seed: int, device: str = "cpu") -> FinishedRun:
    """`dpassay.generate` with noise from a seed instead of the operating system's entropy: it cannot be released."""
    from dpassay.jobs import generate

    return generate.generate(claim, output, device=device, source=Recorded(seed))
