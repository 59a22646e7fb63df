"""The page: well-formed, self-contained, in order, and nothing in an assay can break out of its text."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from html.parser import HTMLParser
from typing import get_args

import pytest
from shared_work import DRAWN

from dpassay.accounting.bounds import Interval, RiskName
from dpassay.audits.verdict_wording import MEANS
from dpassay.reports.assay import Assay
from dpassay.reports.html import Side, render

RISKS = get_args(RiskName)
SIDES = ["private", "release"]
VOID = {"meta", "link", "br", "hr", "img", "input"}
HOSTILE = "<script>alert(1)</script>\"'`{{7*7}}{% raw %}$x^2$&amp;</style></title><svg onload=x>\x00\u202e"


class Page(HTMLParser):
    """Checks that tags nest, and collects what the tests ask for."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[int, str]] = []
        self.words = ""
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch(r"h\d", tag):
            self.headings.append((int(tag[1]), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words += data
        if self.open and re.fullmatch(r"h\d", self.open[-1]):
            self.headings[-1] = (self.headings[-1][0], self.headings[-1][1] + data)


@pytest.mark.parametrize("side", SIDES)
def test_the_page_is_well_formed_and_self_contained(assay: Assay, side: str) -> None:
    html = render(assay, side=side)  # type: ignore[arg-type]
    page = Page(html)
    assert html.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?://|//[a-z]|@import|url\((?!#)", html), "something from elsewhere"
    assert "script" not in {tag for tag, _ in page.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', html)
    assert {a or b for a, b in targets} <= set(ids)
    for _, attributes in page.tags:
        for reference in (attributes.get("aria-labelledby") or "").split():
            assert reference in ids


@pytest.mark.parametrize("side", SIDES)
def test_sections_come_in_order(assay: Assay, side: str) -> None:
    page = Page(render(assay, side=side))  # type: ignore[arg-type]
    results = [attributes.get("id") for tag, attributes in page.tags if tag == "section"]
    expected = ["verdict", "claim", "proof", "evidence", "differences", "limits"]
    shown = side == "private" and bool(assay.differences)
    assert results == [name for name in expected if shown or name != "differences"]
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), "a level is skipped"


@pytest.mark.parametrize("side", SIDES)
def test_figures_are_described(assay: Assay, side: str) -> None:
    html = render(assay, side=side)  # type: ignore[arg-type]
    page = Page(html)
    drawings = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert drawings or side == "release"  # one bar is no picture
    assert all(drawing["role"] == "img" and drawing["aria-labelledby"] for drawing in drawings)
    figures = [tag for tag, _ in page.tags if tag == "figure"]
    assert len(drawings) == 2 * len(figures)  # one for wide screens, one for phones
    assert html.count("The numbers behind this figure") == len(figures)
    assert "#000000" not in html, "a colour that does not follow the page"


def test_what_a_reader_must_find_is_there(assays: dict[str, Assay]) -> None:
    words = Page(render(assays["ex_post"], side="private")).words
    for part in (
        "SUPPORTED",
        "one record is added or removed",
        "4096",
        "What is not protected",
        "512 times",
        "Source minus holdout",
        "Everything that was tried",
        "ceiling",
        assays["ex_post"].ledger.head,
        "Side channels",
        "0.6.0",
    ):
        assert part in words, part
    assert assays["unproven"].missing is not None
    assert assays["unproven"].missing.statement in Page(render(assays["unproven"], side="private")).words


@pytest.mark.parametrize("side", SIDES)
def test_an_enclosure_shows_both_ends(assays: dict[str, Assay], side: str) -> None:
    """Rounded outward, beside the width rounded up; without an enclosure there is a dash, and no word of any."""
    assay = assays["approx_dp"]
    for interval, printed in (
        (Interval(9.24883449, 9.24920151), "[9.24883, 9.24921] width 3.7 × 10⁻⁴"),
        (Interval(9.60451608, math.inf), "[9.60451, ∞] width ∞"),
    ):
        row = dataclasses.replace(assay.bounds[1], value=interval.upper, interval=interval)
        html = render(assay.model_copy(update={"bounds": [row]}), side=side)  # type: ignore[arg-type]
        words = " ".join(Page(html).words.split())
        assert printed in words
        assert "An enclosure is proven to contain the exact value." in words
        assert html.count('data-label="Enclosure"') == 1
    row = dataclasses.replace(assay.bounds[1], interval=None)
    html = render(assay.model_copy(update={"bounds": [row]}), side=side)  # type: ignore[arg-type]
    assert '<td role="cell" data-label="Enclosure"><span>–</span></td>' in html
    assert "An enclosure is proven" not in html


@pytest.mark.parametrize("side", SIDES)
def test_parameters_are_rows_of_a_table(assays: dict[str, Assay], side: str) -> None:
    html = render(assays["ex_post"], side=side)  # type: ignore[arg-type]
    tables = dict(re.findall(r"<caption>([^<]*)</caption>(.*?)</table>", html, flags=re.DOTALL))
    rows = {
        caption: re.findall(r'scope="row">([^<]*)</th><td role="cell">([^<]*)</td>', tables[caption])
        for caption in ("Parameters", "Data", "Public by assumption")
    }
    assert rows["Parameters"][:3] == [("Aggregate", "median"), ("Clip", "10"), ("Temperature", "1.2")]
    assert rows["Data"] == [("Source", "builtin"), ("Name", "keys")]
    assert rows["Public by assumption"] == [("Records", "4096"), ("Labels", "key")]
    assert "aggregate = median" not in html


def test_the_verdict_is_one_of_three_words(assay: Assay) -> None:
    for side in ("private", "release"):
        words = Page(render(assay, side=side)).words
        assert not re.search(r"\b(is|are|was) (private|safe|secure)\b|\bpassed\b|\bpasses\b", words, re.IGNORECASE)


def test_an_audit_that_contradicts_the_accounting_says_so(assays: dict[str, Assay]) -> None:
    assay = assays["ex_post"]
    audit = dataclasses.replace(assay.audits[0], contradictions=("batch 3: a loss exceeds its cost",))
    html = render(assay.model_copy(update={"audits": [audit]}), side="private")
    assert "What went wrong" in html
    assert "batch 3: a loss exceeds its cost" in html


def test_a_proof_that_evidence_contradicts_is_not_shown_as_proven(assays: dict[str, Assay]) -> None:
    assay = assays["approx_dp"]
    sentence = "taken out of the whole pipeline, the privacy loss of a record exceeds the proof"
    seen = assay.model_copy(update={"contradictions": [sentence], "best_upper": None})
    html = render(seen, side="private")
    assert "Evidence contradicts these bounds" in html
    assert sentence.partition(" ")[2] in Page(html).words
    assert "evidence contradicts the certified upper bounds" in html
    assert "Evidence contradicts" not in render(assay, side="private")
    assert render(seen, side="release") == render(assay, side="release")


def test_an_audit_that_could_not_have_refuted_says_so(assays: dict[str, Assay]) -> None:
    html = render(assays["unproven"], side="private")
    assert "This audit could not have refuted the claim" in html  # ceiling 2.871, claim 5
    assert "This audit could not have refuted the claim" not in render(assays["refuted"], side="private")


def test_as_published_is_labelled(assays: dict[str, Assay]) -> None:
    assay = assays["approx_dp"]
    published = assay.model_copy(update={"claim": {**assay.claim, "variant": "as_published"}})
    for side in ("private", "release"):
        assert "variant: as published" in render(published, side=side)
        assert "variant: as published" not in render(assay, side=side)


@pytest.mark.grid
@pytest.mark.parametrize("side", SIDES)
def test_hostile_text_stays_text(assay: Assay, side: str) -> None:
    def poison(value: object) -> object:
        """Every string replaced or extended, where the schema leaves it free."""
        if isinstance(value, dict):
            fixed = ("direction", "rigor", "adjacency", "unit", "quantity", "verdict", "schema", "type", "head")
            known = value.get("name") in RISKS  # of a meaning of the proof, which the schema fixes, too
            return {
                key: item if key in fixed or (known and key == "name") else poison(item) for key, item in value.items()
            }
        if isinstance(value, list):
            return [poison(item) for item in value]
        return HOSTILE if isinstance(value, str) and value not in ("inf", "-inf") else value

    hostile = Assay.model_validate(poison(assay.model_dump(mode="json")))
    html = render(hostile, side=side)  # type: ignore[arg-type]
    page = Page(html)
    assert "<script" not in html
    assert "onload=x>" not in html
    assert "\x00" not in html
    assert "\u202e" not in html
    assert "{{7*7}}" in page.words
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


@pytest.mark.grid
def test_the_same_assay_gives_the_same_bytes(assay: Assay) -> None:
    first = render(assay, side="private")
    DRAWN.clear()
    assert render(assay, side="private") == first


def test_an_assay_with_nothing_in_it_still_renders(assays: dict[str, Assay]) -> None:
    empty = assays["approx_dp"].model_copy(
        update={"bounds": [], "audits": [], "claim": {}, "spent": {}, "implementation": {}, "versions": {}}
    )
    for side in ("private", "release"):
        Page(render(empty, side=side))


def test_an_unknown_side_is_refused(assay: Assay) -> None:
    with pytest.raises(ValueError, match="private or release"):
        render(assay, side="public")  # type: ignore[arg-type]


def test_an_ex_post_bound_says_that_it_is_of_this_output_beside_its_number(assays: dict[str, Assay]) -> None:
    """And what is proven of every output stands next to it."""
    words = " ".join(Page(render(assays["ex_post"], side="private")).words.split())
    start, end = words.index("Proven"), words.index("Shown by audits")
    assert "this output only: Ex-post accounting, certified" in words[start:end]
    assert "Proven a priori" in words[start:end]
    assert "Proven a priori" not in Page(render(assays["approx_dp"], side="private")).words


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_verdict_says_on_how_many_assumptions_the_proof_rests(assays: dict[str, Assay], count: int) -> None:
    assay = assays["approx_dp"]
    upper = next(row for row in assay.bounds if (row.direction, row.rigor) == ("upper", "certified"))
    upper = dataclasses.replace(upper, assumptions=tuple(f"Assumption {k}." for k in range(count)))
    words = Page(render(assay.model_copy(update={"best_upper": upper}), side="private")).words
    said = {0: "certified\n", 1: "certified, given 1 assumption\n", 2: "certified, given 2 assumptions\n"}[count]
    assert f"{said.strip()}\nShown by audits" in re.sub(r"\s*\n\s*", "\n", words)


def with_ceiling(assay: Assay, ceiling: float | None, passed: bool | None = True) -> Assay:
    """The assay, whose audits could have shown so much at most, and whose earlier verdicts made none."""
    audits = [
        dataclasses.replace(
            audit,
            controls_passed=passed,
            bounds=tuple(dataclasses.replace(row, ceiling=ceiling) for row in audit.bounds),
        )
        for audit in assay.audits
    ]
    return assay.model_copy(update={"verdict": "SUPPORTED", "audits": audits, "history": []})


def test_supported_without_an_audit_that_could_refute_looks_unlike_supported_with_one(
    assays: dict[str, Assay],
) -> None:
    assay, claimed = assays["ex_post"], 3.0
    able = render(with_ceiling(assay, claimed + 0.1), side="private")
    assert "by proof alone" not in Page(able).words
    assert "it could have refuted the claim" in Page(able).words
    for unable in (
        with_ceiling(assay, claimed),
        with_ceiling(assay, None),
        with_ceiling(assay, claimed + 0.1, passed=False),
    ):
        html = render(unable, side="private")
        assert "by proof alone: no audit is known that could have refuted it" in Page(html).words
        assert 'class="word supported unaudited"' in html
        assert "it could have refuted the claim" not in Page(html).words
    html = render(with_ceiling(assay, 9.0).model_copy(update={"audits": []}), side="private")
    assert "by proof alone: no audit was made" in Page(html).words
    assert 'class="word supported unaudited"' in html


def test_everything_is_inside_a_landmark(assay: Assay) -> None:
    """Readers of screens jump between landmarks; what lies outside of all is missed (axe: region)."""
    for side in SIDES:
        body = render(assay, side=side).split("<body>")[1]  # type: ignore[arg-type]
        top = re.sub(r"<(aside|header|nav|main|footer)\b.*?</\1>", "", body, flags=re.DOTALL)
        assert re.sub(r'<a class="skip".*?</a>|</body>|</html>|\s', "", top) == ""


def test_printed_pages_say_whose_they_are(assays: dict[str, Assay]) -> None:
    assay = assays["approx_dp"].model_copy(update={"name": 'a "b\\ } </style>é'})
    for side, word in zip(SIDES, ("PRIVATE", "RELEASABLE"), strict=True):
        html = render(assay, side=side)  # type: ignore[arg-type]
        (printed,) = re.findall(r"@top-left \{ content: \"(.*)\"; \}", html)
        assert printed == f"{word} · a \\22 b\\5c  \\7d  \\3c \\2f style\\3e \\e9 "
        assert assay.ledger.head in html.split("@bottom-left")[1].split("}")[0]


@pytest.mark.parametrize("side", ["private", "release"])
def test_the_glossary_defines_the_words_of_the_page_and_no_others(assay: Assay, side: Side) -> None:
    page = render(assay, side=side)
    main, _, footer = page.partition("<h2>Glossary</h2>")
    words = re.sub("<[^>]*>", " ", main).lower()
    defined = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", footer))
    for name in defined.keys() - MEANS.keys():
        assert re.search(name.removesuffix("y").replace(" ", "[ -]").replace("power", "% power"), words), name
    assert {"ε", "unit", "ledger"} <= defined.keys()
    assert ("batching key" in defined) == ("batching" in words)
    assert ("credible" in defined) == ("credible" in words)
    assert ("SUPPORTED" in defined) == (side == "private")


def test_withheld_evidence_is_a_line_an_audit(assays: dict[str, Assay]) -> None:
    assay = assays["ex_post"]
    html = render(assay, side="release")
    assert html.count("Results are withheld") == len({(a.name, a.attack) for a in assay.audits})
    assert "How it was done" not in html
