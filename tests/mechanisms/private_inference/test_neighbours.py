"""Brute force over neighbours: what private inference leaks, run as a whole, against what its ledger and plan say.

The language model is a table over a vocabulary of 4 tokens, so that every neighbour of a data set and, for small
budgets, every output can be listed. Log-ratios are of the whole pipeline (labels, hashing, contexts, aggregation,
documents), of the law that is sampled up to `selection_rounding`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from neighbouring import (
    FLOAT,
    KEY,
    NEIGHBOURS,
    added_or_removed,
    data_set,
    log_ratio,
    pure_epsilon,
    realised_epsilons,
    replaced,
    scores_of_slots,
)

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.data.batching import keyed_hash
from dpassay.data.records import Record
from dpassay.mechanisms.primitives import counts
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.private_inference import aggregation
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.transcripts import Transcript

CLIP, TEMPERATURE = 4.0, 1.3


def mechanism(**changes: Any) -> PrivateInference:
    base: dict[str, Any] = {
        "aggregate": "median",
        "clip": CLIP,
        "temperature": TEMPERATURE,
        "batch_size": 3,
        "tokens": 3,
        "records": 6,
    }
    return PrivateInference(**(base | changes))


CASES: list[tuple[str, dict[str, Any]]] = [
    ("add_remove", {}),
    ("add_remove", {"batch_size": 1}),
    ("add_remove", {"batch_size": 2, "records_per_context": 2}),
    ("replace_one", {"adjacency": Adjacency.REPLACE_ONE}),
    ("user", {"unit": Unit("user"), "records": 3, "batch_size": 2}),
    ("add_remove", {"variant": "as_published", "batch_size": 2}),
    ("add_remove", {"variant": "as_published", "records_per_context": 2, "batch_size": 2}),
    ("add_remove", {"center": "public"}),
    ("add_remove", {"center": "public", "batch_size": 2, "records_per_context": 2}),
    ("replace_one", {"center": "public", "adjacency": Adjacency.REPLACE_ONE}),
    ("add_remove", {"center": "public", "clip": 1.0, "top_k": 2}),
    ("replace_one", {"center": "public", "clip": 1.0, "top_k": 2, "adjacency": Adjacency.REPLACE_ONE}),
]


@pytest.mark.parametrize(("kind", "changes"), CASES, ids=str)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), size=st.integers(0, 7))
def test_realised_cost_of_medians_bounds_every_neighbour(
    table_model: Any, runs: Any, kind: str, changes: dict[str, Any], seed: int, size: int
) -> None:
    """Any transcript that a run writes: |log-ratio| to every neighbour is within the realised and the planned cost."""
    chosen, model = mechanism(**changes), table_model(seed=seed % 5)
    records = data_set(seed, size, users=kind == "user")
    run = runs.begin(chosen, noise="recorded")
    transcript = generate(chosen, records, model, run, key=KEY, source=Recorded(seed)).transcript
    run.finish()
    minus, plus = realised_epsilons(chosen, run)
    planned = pure_epsilon(chosen.plan(), chosen.adjacency)
    assert max(minus, plus) <= planned + FLOAT
    for other in NEIGHBOURS[kind](records, seed):
        ratio = log_ratio(chosen, model, records, other, transcript)
        assert -plus - FLOAT <= ratio <= minus + FLOAT


def slot_laws(chosen: PrivateInference, model: Any, records: Sequence[Record]) -> list[dict[tuple[int, ...], float]]:
    """For each slot, the log-probability of every sequence of tokens that it may write; slots are independent."""
    laws: list[dict[tuple[int, ...], float]] = [{} for _ in range(chosen.total_slots)]
    for tokens in itertools.product(range(model.vocabulary_size), repeat=chosen.tokens):
        transcript = Transcript((tokens,) * chosen.total_slots, (True,) * chosen.total_slots)
        for law, score in zip(laws, scores_of_slots(chosen, records, model, transcript, key=KEY), strict=True):
            if score > -math.inf:
                law[tokens] = float(score)
    return laws


MEANS: list[tuple[str, dict[str, Any]]] = [
    ("add_remove", {}),
    ("add_remove", {"anchor": True, "denominator": 2}),
    ("add_remove", {"records_per_context": 2, "batch_size": 2}),
    ("replace_one", {"adjacency": Adjacency.REPLACE_ONE}),
    ("replace_one", {"adjacency": Adjacency.REPLACE_ONE, "records_per_context": 2, "batch_size": 2}),
    ("add_remove", {"variant": "as_published"}),
    ("add_remove", {"variant": "as_published", "records_per_context": 2, "batch_size": 2}),
    ("add_remove", {"center": "public"}),
    ("add_remove", {"center": "public", "records_per_context": 2, "batch_size": 2}),
    ("replace_one", {"center": "public", "adjacency": Adjacency.REPLACE_ONE}),
    ("add_remove", {"center": "public", "clip": 1.0, "top_k": 2}),
    ("replace_one", {"center": "public", "clip": 1.0, "top_k": 2, "adjacency": Adjacency.REPLACE_ONE}),
]


@pytest.mark.grid
@pytest.mark.parametrize(("kind", "changes"), MEANS, ids=str)
@pytest.mark.parametrize("spread", [3.0, 100.0])
def test_every_output_of_a_mean_is_within_the_plan(
    table_model: Any, kind: str, changes: dict[str, Any], spread: float
) -> None:
    """The worst log-ratio over all outputs and neighbours of many data sets, and the exact δ at a zCDP-derived ε."""
    chosen = mechanism(aggregate="mean", tokens=2, **changes)
    planned = pure_epsilon(chosen.plan(), chosen.adjacency)
    worst = 0.0
    for seed in range(3):
        model, records = table_model(vocabulary=3, seed=seed, spread=spread), data_set(seed, 5)
        laws = slot_laws(chosen, model, records)
        assert all(math.fsum(math.exp(v) for v in law.values()) == pytest.approx(1, abs=FLOAT) for law in laws)
        for other in NEIGHBOURS[kind](records, seed):
            others = slot_laws(chosen, model, other)
            assert [set(law) for law in laws] == [set(law) for law in others]
            # Slots are independent, so the worst output is the worst in each.
            for sign in (1, -1):
                ratios = [max(sign * (a[x] - b[x]) for x in a) for a, b in zip(laws, others, strict=True)]
                worst = max(worst, sum(ratios))
    assert worst <= planned + FLOAT
    # The plan is not idle: some data set comes within a factor (the table cannot move a row as the worst case does).
    assert worst > planned / 20


def test_one_replaced_context_flips_the_mean_by_four_clips() -> None:
    """k = 2: a removal that turns (c, −c) into (−c, c) has the range η = 4c/(sτ), twice the published one."""
    chosen = mechanism(aggregate="mean", records_per_context=2, batch_size=2)
    logits = [np.array([[2 * CLIP, 0.0], [0.0, 0.0]]), np.array([[0.0, 2 * CLIP], [0.0, 0.0]])]
    laws = [
        aggregation.mean(rows, None, clip=CLIP, temperature=TEMPERATURE, denominator=2).log_probability(0)
        - aggregation.mean(rows, None, clip=CLIP, temperature=TEMPERATURE, denominator=2).log_probability(1)
        for rows in logits
    ]
    # Exact in binary but for the division by sτ and two logarithms.
    assert laws[0] - laws[1] == pytest.approx(chosen.token_event().eta, abs=1e-12)
    assert chosen.token_event().eta == 4 * CLIP / (2 * TEMPERATURE)


def shifting(order: str, size: int) -> tuple[list[Record], Record]:
    """Records whose shuffled order has the given texts, and one more that comes before them all."""
    ids = sorted((f"id-{i}" for i in range(200)), key=lambda name: keyed_hash(KEY, "shuffle", name))
    records = [Record(name, text) for name, text in zip(ids[1:], order, strict=False)]
    assert len(records) == size
    return records, Record(ids[0], "1")


class Agreeing:
    """A table in which a record's first digit alone decides the logits, far apart."""

    def __new__(cls, table_model: Any) -> Any:
        model = table_model(vocabulary=4)
        model.row = lambda context, tail: np.eye(4)[context[1] if len(context) > 2 else 0] * 20.0
        return model


def test_pieces_of_a_fixed_size_leak_where_the_published_accounting_says_nothing(table_model: Any, runs: Any) -> None:
    """Pairs of equal records have equal logits, so the published cost of every token is 0 up to float error and the
    sampler's rounding. One record more, in front, shifts every pair: the loss of the whole transcript is large."""
    chosen = mechanism(variant="as_published", batch_size=2, records=6, tokens=2)
    records, extra = shifting("112233", 6)
    run = runs.begin(chosen, noise="recorded")
    generation = generate(chosen, records, Agreeing(table_model), run, key=KEY, source=Recorded(1))
    run.finish()
    assert generation.spent is not None
    published = generation.spent[:, 2].max()
    assert published < 1e-10
    more = [extra, *records]
    loss = log_ratio(chosen, Agreeing(table_model), records, more, generation.transcript)
    assert abs(loss) > 2.0
    minus, plus = realised_epsilons(chosen, run)
    assert -plus - FLOAT <= loss <= minus + FLOAT


def test_hashed_slots_of_the_same_records_leak_no_more_than_they_say(table_model: Any, runs: Any) -> None:
    """The control of the test above: sound batching of the same data, whose realised cost holds."""
    chosen = mechanism(batch_size=2, records=6, tokens=2)
    records, extra = shifting("112233", 6)
    run = runs.begin(chosen, noise="recorded")
    generation = generate(chosen, records, Agreeing(table_model), run, key=KEY, source=Recorded(1))
    minus, plus = realised_epsilons(chosen, run)
    loss = log_ratio(chosen, Agreeing(table_model), records, [extra, *records], generation.transcript)
    assert -plus - FLOAT <= loss <= minus + FLOAT


def test_published_pieces_exceed_the_published_epsilon_of_a_mean(table_model: Any) -> None:
    """All pieces move together, so the worst loss exceeds what the parallel composition of pieces would allow."""
    chosen = mechanism(aggregate="mean", variant="as_published", batch_size=2, records=6, tokens=1)
    model = Agreeing(table_model)
    records, extra = shifting("123123", 6)
    laws, others = (slot_laws(chosen, model, data) for data in (records, [extra, *records]))
    worst = sum(max(a[x] - b[x] for x in a) for a, b in zip(laws, others, strict=True))
    published = pure_epsilon(chosen.published_plan(), chosen.adjacency)
    honest = pure_epsilon(chosen.plan(), chosen.adjacency)
    assert published < worst <= honest + FLOAT


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000), size=st.integers(0, 8))
def test_noisy_counts_and_tokens_together_are_within_their_sum(
    table_model: Any, runs: Any, seed: int, size: int
) -> None:
    """With slot counts: log-ratio of counts and tokens ≤ realised cost plus the pure ε₀ of the counts."""
    chosen = mechanism(slot_threshold=2.0, slot_count_epsilon=0.7)
    model, records = table_model(), data_set(seed, size)
    run = runs.begin(chosen, noise="recorded")
    generation = generate(chosen, records, model, run, key=KEY, source=Recorded(seed))
    run.finish()
    costs = run.realised().values()
    minus, plus = (max([0.0, *(getattr(c, side) for c in costs)]) for side in ("u_minus", "u_plus"))
    assert generation.released_counts is not None
    law: dict[str, Any] = {"epsilon": chosen.slot_count_epsilon, "adjacency": chosen.adjacency}
    own = counts.log_probability(generation.released_counts, chosen.batches(records, KEY).units, **law)
    for other in added_or_removed(records, seed):
        theirs = counts.log_probability(generation.released_counts, chosen.batches(other, KEY).units, **law)
        ratio = own - theirs + log_ratio(chosen, model, records, other, generation.transcript)
        assert -plus - 0.7 - FLOAT <= ratio <= minus + 0.7 + FLOAT


def test_the_brute_force_can_fail(table_model: Any, runs: Any) -> None:
    """Costs that were halved, or counted for another adjacency, would not pass."""
    exceeded = 0
    for seed in range(8):
        chosen, model, records = mechanism(), table_model(seed=seed), data_set(seed, 6)
        run = runs.begin(chosen, noise="recorded")
        transcript = generate(chosen, records, model, run, key=KEY, source=Recorded(seed)).transcript
        minus, plus = realised_epsilons(chosen, run)
        for other in replaced(records, seed):
            ratio = log_ratio(chosen, model, records, other, transcript)
            exceeded += not -plus / 2 <= ratio <= minus / 2
    assert exceeded
