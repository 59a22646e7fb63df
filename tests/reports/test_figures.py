"""Figures at the edges: zeros, infinities, one value, thousands of batches; and the ledger in words."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st

from dpassay.accounting import Adjacency, Bound, Unit, events
from dpassay.accounting.bounds import Direction, Rigor
from dpassay.reports import composition, figures, svg
from dpassay.reports.assay import Assay, BatchCost, TokenCost
from dpassay.reports.claim import ClaimedValue
from dpassay.reports.html import render

CLAIM = ClaimedValue("pure_dp", "epsilon", 3.0, None, Unit(), "add_remove")


def row(direction: str, value: float, ceiling: float | None = None) -> Bound:
    return Bound(Direction(direction), value, "basic", Rigor.CERTIFIED, Adjacency.ADD_REMOVE, ceiling=ceiling)


def coordinates(drawing: str) -> list[float]:
    """Every number in the paths and texts of a drawing."""
    attributes = re.findall(r' (?:d|x|y)="([^"]*)"', drawing)
    return [float(n) for part in attributes for n in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?|nan|inf", part)]


values = st.one_of(st.just(0.0), st.just(math.inf), st.floats(1e-12, 1e12))


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(["upper", "lower"]), values, st.none() | values), min_size=1, max_size=16))
@settings(max_examples=10)
def test_any_bounds_can_be_drawn(drawn: list[tuple[str, float, float | None]]) -> None:
    figure = figures.claim_and_bounds([row("upper", 1.0), *(row(*item) for item in drawn)], CLAIM)
    assert figure is not None
    for drawing, width in ((figure.wide, svg.WIDE), (figure.narrow, svg.NARROW)):
        height = float(re.search(r'viewBox="0 0 \d+ (\d+)"', drawing)[1])  # type: ignore[index]
        # Markers and caps reach at most 12 pixels beyond what they mark.
        assert all(-12 <= number <= max(width, height) + 12 for number in coordinates(drawing))
    assert figure.table[0][0] == "ε ≤ 3"


@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9), st.booleans())
def test_the_scale_keeps_the_order(a: float, b: float, infinite: bool) -> None:
    numbers = [a, b, 3.0, *([math.inf] if infinite else [])]
    x = figures._Scale.of(numbers, 0, 500)
    ordered = sorted([0.0, *numbers])
    assert [x(value) for value in ordered] == sorted(x(value) for value in ordered)
    assert x(0.0) == 0
    if infinite:
        assert x(math.inf) == 500 > x(max(a, b))


def test_text_is_text_and_follows_the_page() -> None:
    figure = figures.claim_and_bounds([row("upper", 2.0), row("lower", 1.0, 2.5)], CLAIM)
    assert figure is not None
    for drawing in (figure.wide, figure.narrow):
        assert "Basic composition" in drawing
        sizes = [float(size) for size in re.findall(r"font(?:-size)?: [^;\"]*?([\d.]+)px", drawing)]
        assert sizes
        assert min(sizes) >= 12
        assert not re.search(r"(?:fill|stroke): (?!none|var)", drawing), "a colour of its own"


def batch(slot: int, epsilon: float, loss: float = 0.0) -> BatchCost:
    return BatchCost(
        slot=slot,
        size=3,
        documents=2,
        tokens=9,
        epsilon=epsilon,
        epsilon_published=2 * epsilon,
        leave_one_out=loss,
    )


@pytest.mark.grid
@pytest.mark.parametrize(
    "costs",
    [
        [batch(0, 0.0), batch(1, 0.0)],
        [batch(0, 1.0, 0.5), batch(1, 0.0)],
        [batch(i, 10.0 ** (i % 9 - 6), 0.0) for i in range(600)],
    ],
)
def test_any_batches_can_be_drawn(costs: list[BatchCost]) -> None:
    figure = figures.batches(costs, ClaimedValue("ex_post", "ex_post_epsilon", 3.0, None, Unit(), "add_remove"))
    assert figure is not None
    assert len(figure.table) == len(costs)
    assert "nan" not in figure.wide + figure.narrow
    assert len(figure.wide) < 1_500_000


def test_many_batches_share_marks_and_the_largest_of_each_counts() -> None:
    costs = [batch(slot, 1.0 + slot / 20_000, loss=0.9 if slot == 77 else 0.1) for slot in range(20_000)]
    figure = figures.batches(costs)
    assert figure is not None
    assert len(figure.wide) + len(figure.narrow) < 700_000
    assert [row[0] for row in figure.table] == [str(slot) for slot in range(19_999, 19_399, -1)]
    assert figure.caption.startswith("One column for 34 batches, the largest of which counts.")
    assert "The table has the 600 costliest; all are in the JSON of this page." in figure.caption
    assert "20000 batches" in figure.description


def test_a_loss_above_the_cost_is_said() -> None:
    figure = figures.batches([batch(0, 1.0, 2.0), batch(1, 1.0, 0.5)])
    assert figure is not None
    assert "In 1 batch the leave-one-out loss is above the exact cost: an error" in figure.description


@pytest.mark.parametrize("largest", [0.0, 1e-9, 5.0])
def test_any_tokens_can_be_drawn(largest: float) -> None:
    costs = [TokenCost(position=i, count=4, mean=0.0, largest=largest, mean_published=0.1) for i in range(3)]
    assert figures.tokens(costs) is not None
    assert figures.tokens([]) is None


def test_no_rates_no_figure(assays: dict[str, Assay]) -> None:
    leave_one_out, reconstruction = assays["ex_post"].audits
    assert figures.rates(leave_one_out, "a") is None
    figure = figures.rates(reconstruction, "b")
    assert figure is not None
    assert figure.header[:3] == ("What was counted", "Run", "Hits")
    assert figure.table[0][:4] == ("source keys disclosed", "audited run", "41", "2031")
    of = {row[1] for row in figure.table if row[0].startswith(("positive control", "negative control"))}
    assert of == {"control"}
    assert figure.description.startswith("audited run, source keys disclosed: ")


def test_one_rate_is_a_line_of_text_and_no_figure(assays: dict[str, Assay]) -> None:
    audit = assays["ex_post"].audits[1]
    alone = dataclasses.replace(audit, rates=audit.rates[:1], controls=())
    assert figures.rates(alone, "a") is None
    page = render(assays["ex_post"].model_copy(update={"audits": [alone]}), side="private")
    words = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert "Source keys disclosed, audited run 41 of 2031, 2.02 %, interval" in words
    control = dataclasses.replace(audit, rates=(), controls=audit.controls[:1])
    page = render(assays["ex_post"].model_copy(update={"audits": [control]}), side="private")
    assert "requested keys reproduced, control" in page


def test_only_what_may_decide_is_drawn_against_the_claim() -> None:
    """Estimates, and bounds at another δ, adjacency or unit, are in the tables; nothing suggests a comparison."""
    counted = [row("upper", 2.0), row("upper", 2.5), row("lower", 1.0, 2.75)]
    other = row("upper", 1.25)
    others = [
        dataclasses.replace(other, rigor=Rigor.ESTIMATE),
        dataclasses.replace(other, adjacency=Adjacency.REPLACE_ONE),
        dataclasses.replace(other, unit=Unit("user")),
        dataclasses.replace(other, delta=1e-5),
    ]
    figure = figures.claim_and_bounds([*others, *counted], CLAIM)
    assert figure is not None
    assert [line[0] for line in figure.table] == ["ε ≤ 3", "ε ≤ 2", "ε ≤ 2.5", "ε ≥ 1"]
    assert "1.25" not in figure.wide + figure.narrow + figure.description
    assert "In the tables only: 4 more" in figure.caption
    assert figures.claim_and_bounds(others, CLAIM) is None


def test_a_chart_of_one_bar_is_a_sentence(assays: dict[str, Assay]) -> None:
    assert figures.claim_and_bounds([row("upper", 2.0)], CLAIM) is None
    assert figures.claim_and_bounds([row("lower", 1.0, 2.0)], CLAIM) is not None  # the ceiling is another number
    item = batch(7, 0.25, 0.125)
    token = TokenCost(position=0, count=4, mean=0.5, largest=0.75, mean_published=1.5)
    assert figures.batches([item]) is None
    assert figures.tokens([token]) is None
    changes = {"batches": [item], "tokens": [token], "spent": {"tokens": 0.25}}
    page = render(assays["ex_post"].model_copy(update=changes), side="private")
    said = " ".join(re.sub(r"<[^>]*>", "", page).replace("\u00a0", " ").split())
    for sentence in (
        "Tokens: ε = 0.25.",
        "All of it in one batch of 3 contexts: exact cost ε* = 0.25, published cost γ = 0.5, largest leave-one-out "
        "loss 0.125.",
        "Every document has one token: mean exact cost ε* = 0.5, largest 0.75, mean published cost γ = 1.5.",
    ):
        assert sentence in said
    assert 'id="figure-batches"' not in page
    assert 'id="figure-tokens"' not in page
    assert 'class="spent"' not in page
    several = render(assays["ex_post"], side="private")
    assert 'class="spent"' in several
    assert "All of it in one batch" not in several


def test_a_batch_is_compared_with_the_claim_only_where_its_cost_is_the_cost_of_the_run() -> None:
    costs = [batch(0, 1.0), batch(1, 2.0)]
    add_remove = ClaimedValue("ex_post", "ex_post_epsilon", 3.0, None, Unit(), "add_remove")
    replace_one = ClaimedValue("ex_post", "ex_post_epsilon", 3.0, None, Unit(), "replace_one")
    drawn = [figures.batches(costs, claim) for claim in (add_remove, replace_one)]
    assert ["claim 3" in figure.wide for figure in drawn if figure is not None] == [True, False]


def words(step: composition.CompositionLine) -> str:
    return " ".join([step.words, *(words(below) for below in step.below)])


def test_every_event_of_the_ledger_has_words() -> None:
    token = events.ExPostSelectionDpEvent(eta=33.3, rounding=1e-11)
    count = dp_event.DiscreteLaplaceDpEvent(noise_parameter=0.1, sensitivity=1)
    part = events.compose([(token, 512), (count, 1)])
    tree = composition.describe(events.to_json(events.ParallelDpEvent([part] * 64 + [token])))
    told = words(tree)
    assert told.startswith("in parallel on 65 disjoint parts of the data, that is: ")
    for piece in ("64 parts:", "1 part:", "512 times", "bounded range η = 33.3", "discrete Laplace noise"):
        assert piece in told
    for event in (
        dp_event.NoOpDpEvent(),
        dp_event.NonPrivateDpEvent(),
        dp_event.GaussianDpEvent(2.0),
        dp_event.LaplaceDpEvent(2.0),
        dp_event.RandomizedResponseDpEvent(0.5, 2),
        dp_event.ZCDpEvent(0.5),
        dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)),
        events.BoundedRangeSelectionDpEvent(eta=0.1),
    ):
        assert "DpEvent" not in words(composition.describe(events.to_json(event)))


def test_unknown_or_damaged_events_do_not_stop_a_report() -> None:
    assert words(composition.describe({})) == "unknown event"
    assert "Later: noise = 3" in words(composition.describe({"type": "LaterDpEvent", "noise": 3, "event": {}}))
    deep: dict[str, object] = {"type": "NoOpDpEvent"}
    for _ in range(500):
        deep = {"type": "ComposedDpEvent", "events": [deep]}
    assert "deeper levels" in words(composition.describe(deep))
