"""The page of an audit by many runs: well-formed, self-contained, with search, test, power and control."""

from __future__ import annotations

import dataclasses
import html
import re

import pytest
from many_runs_audit import HALF, STEPS, audit_of_runs, runs_document
from printed_numbers import other_forms, two_forms
from whole_pages import HOSTILE, Nesting, outside

from dpassay.reports import figures, svg
from dpassay.reports.runs import RunsAudit, render

NONE = {**HALF, "epsilon": None, "share": None}


def unfinished() -> RunsAudit:
    """A search that tested nothing."""
    details = {
        "search": [], "failing": [], "untried": [], "runs": 3, "most_runs": 60, "limit": 0.5,
    }  # fmt: skip
    audit = audit_of_runs("w", bounds=[], rates=[], trials=0, details=details)
    return runs_document(audit=audit, refuted=False, unprotected=None, detectable=NONE)


def nothing() -> RunsAudit:
    document = runs_document(refuted=False)
    (bound,) = document.audit.bounds
    audit = dataclasses.replace(document.audit, bounds=(dataclasses.replace(bound, value=0.0),))
    return document.model_copy(update={"audit": audit})


def words_of(page: str) -> str:
    plain = re.sub(r"<[^>]*>", " ", re.sub(r"<(style|svg).*?</(style|svg)>", "", page, flags=re.DOTALL))
    return re.sub(r"\s+", " ", html.unescape(plain))


@pytest.mark.parametrize(
    ("document", "headline", "scale"),
    [
        (runs_document(), "REFUTED", True),
        (runs_document(refuted=False), "A leak is shown, not above the claim", True),
        (runs_document(claim=None, guarantee="", refuted=None), "A leak is shown", False),
        (nothing(), "No leak shown", True),
        (unfinished(), "No conclusion", False),
    ],
    ids=["refuted", "a leak", "no claim", "nothing", "unfinished"],
)
def test_the_page_is_well_formed_and_self_contained(document: RunsAudit, headline: str, scale: bool) -> None:
    page = render(document)
    Nesting(page)
    assert page.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?://|//[a-z]|<script|<link|@import|url\((?!#)", page)
    assert re.search(rf'<p class="word[^>]*>(<span.*</span> )?{headline}</p>', page)
    assert ('id="figure-scale"' in page) is scale
    assert ('id="figure-rounds"' in page) is (headline != "No conclusion")
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', outside(page))) <= set(ids)
    assert (two_forms(page), other_forms(page)) == ([], [])


def test_every_pair_is_listed_with_what_its_runs_suggest() -> None:
    """The tested pair first, then those that were compared longest; what failed or was not tried is said."""
    page = render(runs_document())
    table = page[page.index("what their runs suggest") : page.index("An output is described")]
    rows = [words_of(row).split() for row in re.findall(r'<tr role="row".*?</tr>', table, flags=re.DOTALL)[1:]]
    assert [row[0] for row in rows] == ["tested", "second", "failing", "untried"]
    assert [" ".join(row[1:]) for row in rows] == [
        "tested words 9 + 9 1.23 words",
        "words 4 + 4 0.5 words",
        "words 2 + 2 – all runs on D′ failed",
        "words – – not tried: too few runs",
    ]


def test_what_the_reader_asks_is_answered() -> None:
    words = words_of(render(runs_document()))
    for part in (
        "Private.",
        "thresholds of events may reveal values",
        "one record is added or removed",
        "at most 60: up to 24 for the search, 18 rounds of two or more for the test",
        "Detectable at 50 % power ε = 1.24",
        "or if 45.6 % of the runs on D′ have the event and none on D",
        "12 % ε ≥ 0.3",
        "Rounds 1 to 10 words first Rounds 11 to 12 words later",
        "Runs that failed 0 on D and 1 on D′",
        "words D′, protection off",
        "Seconds of the generator 12",
        "all planned runs were made",
    ):
        assert part in words.replace("\u00a0", " "), part


def test_bets_are_listed_by_round() -> None:
    """With the pair and the event that most was bet on; rounds with the same one stand in one row."""
    audit = audit_of_runs("words")
    del audit["details"]["events"]
    bet = {"feature": "words", "threshold": 1.0, "event": "a cell shows it", "share": 0.6, "by_levels": False}
    audit["details"]["bets"] = [
        {"from_round": 0, "pair": "second", "bets": [{**bet, "share": 0.01}]},
        {"from_round": 1, "pair": "tested", "bets": [{**bet, "share": 0.1, "event": "less"}, bet]},
        {"from_round": 4, "pair": "tested", "bets": [bet]},
        {"from_round": 6, "pair": "second", "bets": []},
    ]
    plan = {**runs_document().plan.model_dump(), "halving": False, "pilots": 3, "usual_rounds": 10}
    words = words_of(render(runs_document(audit=audit, plan=plan))).replace("\u00a0", " ")
    for part in (
        "Round 1 second: little or nothing was bet",
        "Rounds 2 to 6 tested: most on that a cell shows it",
        "Rounds 7 to 12 second: little or nothing was bet",
        "at most 60: 3 for a probe, up to 18 rounds of two, one on D and one on D′",
        "These numbers are for 10 rounds on one pair; the others may be on other pairs.",
        "Pair and bets of a round were fixed before the round",
    ):
        assert part in words, part


def test_numbers_for_more_rounds_than_were_planned_say_so() -> None:
    """The search of this document used all its runs; one that ends early leaves more rounds."""
    said = "The search left 21; what these detect is said with the result."
    assert said not in words_of(render(runs_document()))
    audit = audit_of_runs("words")
    audit["details"]["most_rounds"] = 21
    numbers = "These numbers are for the 18 rounds that the plan counted on."
    assert f"{numbers} {said}" in words_of(render(runs_document(audit=audit)))


def test_a_refuted_claim_needs_no_control() -> None:
    words = words_of(render(runs_document(control="", unprotected=None)))
    assert "so no run without protection was needed" in words
    assert "protection off" not in words


def test_the_figure_of_the_rounds_has_a_point_where_a_bound_changes() -> None:
    figure = figures.rounds(STEPS, [], [(6, 0.0), (12, 1.12)], None)
    assert figure is not None
    shown = [row[1:] for row in figure.table if row[0] == "shown"]
    assert shown == [("0", "0"), ("8", "0.21"), ("9", "0.39"), ("10", "0.53"), ("11", "0.66"), ("12", "0.77")]
    flat = figures.rounds([0.0] * 5, [0.0] * 9, [(9, 0.0)], None)
    assert flat is not None
    assert [row[1:] for row in flat.table if row[0] == "shown"] == [("0", "0"), ("5", "0")]
    assert figures.rounds([0.5], [], [], None) is None
    for drawing in (figure.wide, figure.narrow, flat.wide):
        assert drawing.count("<text") > 4
        assert svg.INK not in drawing


def test_the_page_carries_the_name_of_its_audit_and_the_hash_of_its_plan() -> None:
    page = render(runs_document("a name"))
    assert re.search(r"<title>[^<]* · a name · dpassay audit</title>", page)
    assert "<h1>a name</h1>" in page
    assert '@top-left { content: "PRIVATE · a name"; }' in re.sub(r"\\b7 ", "·", page)
    assert f'@bottom-left {{ content: "plan {"ab" * 32}"; }}' in page


def test_nothing_breaks_out_of_its_text() -> None:
    calm, hostile = render(runs_document()), render(runs_document(HOSTILE))
    assert set(Nesting(hostile).tags) == set(Nesting(calm).tags)
    assert Nesting(outside(hostile)).tags == Nesting(outside(calm)).tags
    assert "<script" not in hostile
    assert "\x00" not in hostile
    assert "\u202e" not in hostile
