"""What runs on small models write, score and cost, and what is planned, refused and prompted before them."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from little_inference import KEY, RECORDS, Watcher, mechanism, write
from neighbouring import scores_of_slots

from dpassay.accounting import account
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, ExPostSelectionDpEvent, ParallelDpEvent
from dpassay.data.records import Record
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.primitives.token_sampler import selection_rounding
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.slot_inputs import SlotInputs
from dpassay.mechanisms.private_inference.transcripts import Generation


def test_realised_costs_are_those_of_the_batch(table_model: Any, runs: Any) -> None:
    """The ledger's ex-post costs equal those that an observer computes from the medians it is shown."""
    chosen = mechanism()
    run = runs.begin(chosen, noise="recorded")
    watcher = Watcher()
    generation = write(chosen, table_model(), run, observers=[watcher])
    sums: dict[int, list[tuple[float, float, float]]] = {}
    for seen in watcher.steps:
        cost = seen["medians"].costs(seen["token"], chosen.temperature, rounding=chosen.rounding)
        sums.setdefault(seen["slot"], []).append(tuple(cost))
    assert generation.spent is not None
    for slot, costs in sums.items():
        realised = run.realised()[f"slot-{slot}"]
        for index, value in enumerate((realised.u_minus, realised.u_plus, realised.published)):
            exact = math.fsum(cost[index] for cost in costs)
            # The ledger rounds up; sums of 6 numbers below 50.
            assert exact <= value <= exact + 1e-12
            assert generation.spent[slot, index] == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("aggregate", ["median", "mean", "none"])
def test_scores_equal_the_probabilities_of_the_run(aggregate: str, table_model: Any, runs: Any) -> None:
    chosen, model = mechanism(aggregate=aggregate), table_model()
    watcher = Watcher()
    generation = write(chosen, model, runs.begin(chosen, noise="recorded"), observers=[watcher])
    scores = scores_of_slots(chosen, RECORDS, model, generation.transcript, key=KEY)
    if aggregate == "none":
        expected = unprotected_scores(chosen, watcher, generation)
    else:
        expected = np.zeros(chosen.total_slots)
        for seen in watcher.steps:
            expected[seen["slot"]] += seen["log_probability"]
    assert scores == pytest.approx(expected, abs=1e-9)
    assert scores_of_slots(chosen, RECORDS, model, generation.transcript, key=KEY, slots=[2]).tolist() == [scores[2]]


PROTECTED: list[dict[str, Any]] = [
    {"aggregate": aggregate, **more}
    for aggregate in ("median", "mean")
    for more in ({}, {"center": "public", "clip": 3.0}, {"center": "public", "clip": 1.0, "top_k": 1})
]


@pytest.mark.grid
@pytest.mark.parametrize("changes", [*PROTECTED, {"aggregate": "none"}], ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_record_without_numbers_counts_as_a_public_constant_row(
    changes: dict[str, Any], value: float, table_model: Any, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is that of a model whose logits are 0 for this record; its ledger and its scores are the same."""
    chosen, model = mechanism(**changes), table_model()
    own = SlotInputs(chosen, RECORDS, model, KEY)
    (slot,) = (slot for slot in range(chosen.total_slots) if 3 in own.slot(slot).records)
    context = tuple(own.slot(slot).rows[own.slot(slot).records.index(3)])
    shared = sum(tuple(row) == context for item in map(own.slot, range(chosen.total_slots)) for row in item.rows)
    assert shared >= 1
    plain, seen, constant = type(model).row, [], [False]

    def row(self: Any, given: Any, tail: Any) -> Any:
        logits = np.array(plain(self, given, tail), dtype=np.float64)
        if tuple(given) == context:
            logits[0 if math.isnan(value) or value > 0 else slice(None)] = value
            seen.append(1)
            if constant[0]:
                logits[:] = 0.0
        return logits

    monkeypatch.setattr(type(model), "row", row)
    results = []
    for constant[0] in (False, True):
        run = runs.begin(chosen, noise="recorded")
        generation = write(chosen, model, run)
        scores = scores_of_slots(chosen, RECORDS, model, generation.transcript, key=KEY)
        results.append((generation.transcript, scores.tolist(), run.realised()))
    assert seen
    assert results[0] == results[1]
    assert np.isfinite(results[0][1]).all()


def test_unprotected_scores_are_those_of_the_law_that_is_sampled(table_model: Any, runs: Any) -> None:
    """At a low temperature most tokens lie below the sampler's floor, e⁻⁴⁰ of the largest probability."""
    model = table_model()
    generation = write(mechanism(aggregate="none"), model, runs.begin(mechanism(aggregate="none"), noise="recorded"))
    cold = mechanism(aggregate="none", temperature=0.05)
    inputs = SlotInputs(cold, RECORDS, model, KEY)
    expected, floored = np.zeros(cold.total_slots), 0
    for slot, tokens in enumerate(generation.transcript.tokens):
        contexts = [tuple(context) for context in inputs.slot(slot).rows]
        laws = np.zeros(len(contexts))
        tail: tuple[int, ...] = ()
        for index, token in enumerate(tokens):
            shown = np.array([model.row(context, tail) for context in contexts], dtype=np.float32) / np.float64(0.05)
            shown -= shown.max(axis=1, keepdims=True)
            floored += int((shown[:, token] < -40).sum())
            weights = np.exp(np.maximum(shown, -40))
            laws += np.log(weights[:, token] / weights.sum(axis=1))
            tail = (*tail, token)
            if token == 0 or index + 1 == len(tokens):
                expected[slot] += math.log(np.exp(laws).mean())
                laws, tail = np.zeros(len(contexts)), ()
    assert floored > 10
    # float64 logarithms and sums of a few numbers below 300.
    assert scores_of_slots(cold, RECORDS, model, generation.transcript, key=KEY) == pytest.approx(expected, abs=1e-9)


def unprotected_scores(chosen: PrivateInference, watcher: Watcher, generation: Generation) -> Any:
    """Each document is a mixture over the records of its slot; by hand from the raw logits that observers see."""
    rows: dict[tuple[int, int], Any] = {}
    for seen in watcher.steps:
        shown = np.asarray(seen["clipped"]) / chosen.temperature
        law = shown - np.log(np.exp(shown).sum(axis=1, keepdims=True))
        index = (seen["slot"], seen["document"])
        rows[index] = rows.get(index, 0.0) + law[:, seen["token"]]
    scores = np.zeros(chosen.total_slots)
    for (slot, _), by_row in rows.items():
        if len(by_row):
            scores[slot] += math.log(np.exp(by_row).mean())
    return scores


def test_unprotected_documents_name_their_source(table_model: Any, runs: Any) -> None:
    chosen = mechanism(aggregate="none", tokens=20)
    watcher = Watcher()
    generation = write(chosen, table_model(), runs.begin(chosen, noise="recorded"), observers=[watcher])
    members = {s["slot"]: s["records"] for s in watcher.steps}
    sources = [(document.slot, document.source) for document in generation.documents]
    assert all(source in members[slot] for slot, source in sources if members[slot])
    assert len({source for _, source in sources}) > len(members)
    first = watcher.steps[0]
    row = list(first["records"]).index(generation.documents[0].source)
    shown = np.asarray(first["clipped"])[row] / chosen.temperature
    # Two log-softmaxes of numbers below 50.
    assert first["log_probability"] == pytest.approx(
        shown[first["token"]] - math.log(np.exp(shown - shown.max()).sum()) - shown.max(), abs=1e-12
    )


def test_an_empty_slot_releases_the_public_fallback(table_model: Any, runs: Any) -> None:
    model = table_model()
    chosen = mechanism(records=4, batch_size=1, labels=())
    run, watcher = runs.begin(chosen, noise="recorded"), Watcher()
    generate(chosen, [], model, run, key=KEY, source=Recorded(1), observers=[watcher])
    first = watcher.steps[0]
    raw = model.row((0,), ())
    expected = np.maximum(raw - raw.max() + 6.0, -6.0)
    # Rounded to multiples of 2⁻²⁴, from logits in float32.
    assert first["medians"].median == pytest.approx(expected, abs=1e-5)
    chosen = dataclasses.replace(chosen, aggregate="mean")
    watcher = Watcher()
    generate(chosen, [], model, runs.begin(chosen, noise="recorded"), key=KEY, source=Recorded(1), observers=[watcher])
    assert watcher.steps[0]["log_probability"] == pytest.approx(-math.log(4), abs=1e-15)


def test_a_threshold_keeps_thin_slots_from_running_and_charges_them_all(table_model: Any, runs: Any) -> None:
    chosen = mechanism(slot_threshold=1e6, slot_count_epsilon=2.0)
    run = runs.begin(chosen, noise="recorded")
    generation = write(chosen, table_model(), run)
    run.finish()
    assert generation.documents == ()
    assert generation.transcript.running == (False,) * chosen.total_slots
    assert generation.released_counts is not None
    assert run.outcome("counts").value == generation.released_counts.tolist()
    assert generation.token_costs is not None
    assert np.isnan(generation.token_costs).all()


def test_documents_end_at_the_public_largest_length(table_model: Any, runs: Any) -> None:
    chosen = mechanism(tokens=12)
    model = table_model(longest=6)
    model.end_of_text_ids = (99,)
    generation = generate(chosen, [], model, runs.begin(chosen, noise="recorded"), key=KEY, source=Recorded(1))
    assert {len(document.tokens) for document in generation.documents} == {6}
    assert not any(document.complete for document in generation.documents)


def test_progress_counts_to_the_end(table_model: Any, runs: Any) -> None:
    chosen = mechanism()
    seen: list[tuple[int, int]] = []
    write(chosen, table_model(), runs.begin(chosen, noise="recorded"), progress=lambda d, t: seen.append((d, t)))
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert {total for _, total in seen} == {len(seen)}


def test_groups_of_slots_do_not_change_what_is_written(tiny: LanguageModel, runs: Any) -> None:
    chosen = mechanism(tokens=4, prefix="key ")
    whole = generate(chosen, RECORDS, tiny, runs.begin(chosen), key=KEY, rows_at_once=1000)
    for rows in (1, 4):
        run = runs.begin(chosen)
        generate(chosen, RECORDS, tiny, run, key=KEY, rows_at_once=rows)
        run.finish()
    assert all(document.text.startswith("key ") for document in whole.documents)
    scores = scores_of_slots(chosen, RECORDS, tiny, whole.transcript, key=KEY)
    assert np.isfinite(scores).all()


@pytest.mark.grid
@pytest.mark.parametrize("aggregate", ["median", "mean"])
def test_decoding_equals_a_naive_forward_of_each_context(aggregate: str, any_model: LanguageModel, runs: Any) -> None:
    """What is aggregated against plain forwards of each record's whole text by itself. Tolerance: 1e-5 of the largest
    logit, float32 rounding of sums in another order, and at least the grid of 2⁻²⁴."""
    chosen = mechanism(aggregate=aggregate, tokens=5, prefix="k", template="{examples}\n")
    watcher = Watcher()
    generation = generate(chosen, RECORDS, any_model, runs.begin(chosen), key=KEY, observers=[watcher])
    prefix = any_model.encode("k")
    tails: dict[int, list[int]] = {}
    for seen in watcher.steps:
        tail = tails.setdefault(seen["slot"], [])
        if seen["position"] == 0:
            tail.clear()
        texts = [RECORDS[index].text for index in seen["records"]]
        contexts = [any_model.encode(f"{text}\n") + prefix + tail for text in texts]
        raw = np.array([any_model.plain_logits(context).numpy() for context in contexts]).reshape(len(texts), -1)
        clipped = np.maximum(raw - raw.max(axis=1, keepdims=True) + 6.0, -6.0)
        assert np.abs(clipped - seen["clipped"]).max(initial=0.0) < 1e-5 * max(1.0, np.abs(raw).max(initial=0.0))
        tail.append(seen["token"])
    assert len(generation.documents) >= chosen.total_slots


def test_plans() -> None:
    rounding = selection_rounding(6.0, 1.5)
    part = dp_event.SelfComposedDpEvent(ExPostSelectionDpEvent(16.0, rounding), 6)
    assert mechanism().plan() == ParallelDpEvent([part] * 4)
    mean = mechanism(aggregate="mean", batch_size=4, records=32)
    assert mean.token_event() == BoundedRangeSelectionDpEvent(2 * 6 / (4 * 1.5), rounding)
    exchanged = dataclasses.replace(mean, adjacency=Adjacency.REPLACE_ONE)
    jointly = BoundedRangeSelectionDpEvent(4 * 6 / (4 * 1.5), 2 * rounding)
    assert exchanged.plan() == dp_event.SelfComposedDpEvent(jointly, 6)
    assert dataclasses.replace(exchanged, records_per_context=2).token_event().eta == 2 * jointly.eta
    assert dataclasses.replace(mean, records_per_context=2).token_event().eta == 2 * mean.token_event().eta
    counted = mechanism(slot_threshold=3.0).plan()
    assert dp_event.DiscreteLaplaceDpEvent(0.1, 1) in counted.events
    published = mechanism(aggregate="mean", variant="as_published", batch_size=3)
    whole = dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(4 * 6 / (3 * 1.5), rounding), 6 * 2)
    assert published.plan() == ParallelDpEvent([whole] * 2)
    claimed = dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(2 * 6 / (3 * 1.5)), 6)
    assert published.published_plan() == ParallelDpEvent([claimed] * 4)
    unprotected = dp_event.SelfComposedDpEvent(dp_event.NonPrivateDpEvent(), 6)
    assert mechanism(aggregate="none").plan() == ParallelDpEvent([unprotected] * 4)


@pytest.mark.parametrize(
    ("n", "s", "epsilon", "doubled"),
    [
        (367, 64, 9.888715, 23.416),
        (373, 64, 9.985061, 23.664),
        (689, 256, 2.897877, 6.3416),
        (733, 256, 2.999107, 6.5729),
    ],
)
def test_planned_epsilon_of_a_mean_is_that_of_the_papers_table(n: int, s: int, epsilon: float, doubled: float) -> None:
    """AGNews, N = 108000, c = 9, τ = 1.5, δ = N^−1.1: printed to six decimals, at 4c/(sτ) to five digits."""
    base: dict[str, Any] = {
        "aggregate": "mean",
        "clip": 9.0,
        "temperature": 1.5,
        "batch_size": s,
        "tokens": n,
        "records": 108000,
    }

    def planned(**changes: Any) -> float:
        chosen = PrivateInference(**(base | changes))
        bound = account(chosen.plan(), adjacency=chosen.adjacency, delta=108000**-1.1, method="zcdp")
        return bound.value

    assert planned() == pytest.approx(epsilon, abs=1e-6)
    for changes in ({"adjacency": Adjacency.REPLACE_ONE}, {"records_per_context": 2}):
        assert planned(**changes) == pytest.approx(doubled, rel=2e-5)


def test_slots_follow_from_public_numbers_alone() -> None:
    assert mechanism(records=4096, batch_size=63, labels=("key",)).slots == 65
    assert mechanism(records=100, batch_size=10, labels=("a", "b"), records_per_context=2).slots == 2
    assert mechanism(records=1).slots == 1
    two = mechanism(records=100, batch_size=9, labels=("a", "b"), records_per_context=2)
    assert (two.slots, two.contexts_per_slot) == (3, 9)
    assert [mechanism().label_of(slot) for slot in range(4)] == ["a", "a", "b", "b"]
    assert mechanism(labels=()).label_of(0) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregate": "mode"}, "aggregate must be one of"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"clip": 70.0, "temperature": 10.0}, "clip must be between 5.96e-08 and 64, not 70.0"),
        ({"clip": 1e-9}, "clip must be between 5.96e-08 and 64, not 1e-09"),
        ({"temperature": -1.0}, "temperature must be above 0"),
        ({"temperature": 0.1}, "at most 40"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"tokens": 1.5}, "tokens must be a whole number"),
        ({"denominator": 5}, "is a parameter of aggregate mean"),
        ({"anchor": True}, "is a parameter of aggregate mean"),
        ({"labels": ("a", "a")}, "each label once"),
        ({"labels": "ab"}, "tuple of non-empty strings"),
        ({"template": "no records"}, "must use examples"),
        ({"template": "{examples} {nothing}"}, "does not render"),
        ({"template": "{% for %} examples"}, "does not render"),
        ({"stop": ""}, "stop must not be empty"),
        ({"adjacency": Adjacency.REPLACE_ONE, "records_per_context": 2}, "needs records_per_context 1"),
        ({"unit": Unit("group", 2)}, "record or user"),
        ({"adjacency": Adjacency.SECRET}, "add_remove or replace_one"),
        ({"variant": "improved"}, "variant must be one of"),
        ({"slot_count_epsilon": 0.0}, "slot_count_epsilon must be above 0"),
        ({"slot_threshold": math.inf}, "slot_threshold must be finite"),
        ({"aggregate": "none", "slot_threshold": 1.0}, "no effect without protection"),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        mechanism(**changes)
    assert "\n" not in str(error.value)


def test_prompts_that_do_not_fit_are_refused_before_anything_is_charged(tiny: LanguageModel) -> None:
    mechanism().check(RECORDS, tiny)
    with pytest.raises(ValueError, match="shorten them"):
        mechanism(prefix="a long beginning " * 20).check(RECORDS, tiny)


def test_long_records_are_cut_by_a_rule_for_each_record(tiny: LanguageModel) -> None:
    chosen = mechanism(template="{label}: {examples}", records_per_context=2)
    prompt = chosen.prompt(tiny, "a")
    share = prompt.record_tokens
    short, long = "tiny", "x y z " * 100
    both = prompt.context([short, long], share)
    assert len(both) <= tiny.context_length // 2
    assert tiny.decode(both).startswith("a: tiny")
    assert prompt.context([short, long + "more"], share) == both
    many = prompt.context([long] * 9, share)
    assert len(many) <= tiny.context_length // 2


def test_a_stop_string_ends_a_document(tiny: LanguageModel) -> None:
    rule = mechanism(template="{examples}", stop="END").end_rule(tiny)
    tokens = tiny.encode("some textEND")
    assert rule.stopped(tokens)
    assert not rule.stopped(tokens[:-1])
    assert rule.text(tokens) == "some text"
    assert rule.split([*tokens, *tokens, 5]) == [tuple(tokens), tuple(tokens), (5,)]
    assert mechanism().end_rule(tiny).stop == "```"


def test_the_default_template_is_the_published_one(tiny: LanguageModel) -> None:
    prompt = mechanism().prompt(tiny, "World")
    assert tiny.decode(prompt.context(["one", "two"], 20)) == (
        "```\nWorld\none\n```\n\n```\nWorld\ntwo\n```\n\n```\nWorld\n"
    )


def test_the_embedded_form_is_a_series(table_model: Callable[[], Any]) -> None:
    prompt = mechanism(prefix="12").prompt(table_model(), "a")
    assert prompt.context(["33", "2"], 8) == [0, 3, 3, 0, 2, 0, 1, 2]
    assert prompt.context([], 8) == [0, 1, 2]


def test_a_record_is_tokenised_once(table_model: Any, runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokens are those of its context, too, unless it is cut; the beginning of documents is tokenised for a label,
    not for a context."""
    texts = [f"{number:b}".replace("0", "3") + "21" * 9 * (number % 4 == 0) for number in range(1, 13)]
    records = [Record(f"id-{number}", text, "ab"[number % 2]) for number, text in enumerate(texts)]
    chosen, model, calls = mechanism(context_tokens=14, prefix="32"), table_model(), Counter[str]()
    encode = model.encode

    def counted(text: str) -> list[int]:
        calls[text] += 1
        return list(encode(text))

    monkeypatch.setattr(model, "encode", counted)
    generation = generate(chosen, records, model, runs.begin(chosen), key=KEY)
    room = chosen.prompt(model, "a").record_tokens
    assert generation.cut.tolist() == [len(text) > room for text in texts]
    assert {calls[text] for text in texts} == {1}
    assert calls["32"] < len(texts)
