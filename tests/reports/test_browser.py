"""The page in a real browser: no errors, no requests, no overflow, enough contrast, readable on a phone."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy_functions
from axe_playwright_python.sync_playwright import Axe
from many_runs_audit import runs_document
from planted_audit import document
from summary_page import summary_document
from written_pages import PAGES, RESULTS

from dpassay.audits.games import many_runs_power
from dpassay.reports import canaries, runs, summary
from dpassay.reports.assay import Assay
from dpassay.reports.html import render

_HELPER = importlib.util.spec_from_file_location("screenshot", Path(__file__).with_name("screenshot.py"))
assert _HELPER is not None
assert _HELPER.loader is not None
screenshot: Any = importlib.util.module_from_spec(_HELPER)
_HELPER.loader.exec_module(screenshot)

pytestmark = pytest.mark.skipif(screenshot.chromium() is None, reason="no Chromium: apt-get install chromium")

# Contrast of every visible text with what lies behind it, by the formula of WCAG 2.2, success criterion 1.4.3.
CONTRAST = """() => {
  const rgb = c => c.match(/[\\d.]+/g).map(Number);
  const lum = c => { const [r, g, b] = rgb(c).slice(0, 3).map(v => { v /= 255;
    return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const ratio = (a, b) => { const [x, y] = [lum(a), lum(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    const v = rgb(c); if (v.length < 4 || v[3] > 0) return c; } return 'rgb(255, 255, 255)'; };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), bad = []; let seen = 0;
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement, s = getComputedStyle(e);
    if (!n.data.trim() || !e.getClientRects().length || ['title', 'desc'].includes(e.tagName)) continue;
    const colour = e instanceof SVGElement ? s.fill : s.color, r = ratio(colour, behind(e)); seen += 1;
    if (r < (parseFloat(s.fontSize) >= 24 ? 3 : 4.5)) bad.push([n.data.trim().slice(0, 40), r]);
  }
  const root = getComputedStyle(document.documentElement), probe = document.createElement('i');
  document.body.append(probe);
  const colour = v => { probe.style.color = root.getPropertyValue(v); return getComputedStyle(probe).color; };
  for (const v of ['--upper', '--lower', '--ceiling', '--published', '--rule-strong']) {
    const r = ratio(colour(v), colour('--page')); seen += 1; if (r < 3) bad.push([v, r]); }
  probe.remove(); return {seen, bad};
}"""

# Boxes that cut off what they hold; those of one pixel are for readers of screens.
CLIPPED = """() => [...document.querySelectorAll('body *')].filter(e => e.clientWidth > 1 &&
  getComputedStyle(e).overflowX === 'hidden' && e.scrollWidth > e.clientWidth + 1).map(e => e.className)"""

PAPER = 672
"""Width of A4 less its margins, in CSS pixels."""

# Rendered size and place of the text of every visible drawing.
DRAWN_TEXT = """() => [...document.querySelectorAll('.drawing svg')].flatMap(s => {
  if (!s.getClientRects().length) return [];
  const box = s.getBoundingClientRect(), zoom = box.width / s.viewBox.baseVal.width;
  return [...s.querySelectorAll('text')].map(t => { const r = t.getBoundingClientRect();
    return {words: t.textContent, size: parseFloat(getComputedStyle(t).fontSize) * zoom,
      outside: Math.max(box.left - r.left, r.right - box.right, box.top - r.top, r.bottom - box.bottom)}; });
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with screenshot.browser() as instance:
        yield instance


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    opened = []

    def open_page(html: str, width: int, colours: str = "light") -> Any:
        file = tmp_path / "report.html"
        file.write_text(html, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=colours)
        page.problems = []
        page.on("console", lambda message: page.problems.append(message.text))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", lambda request: request.url == file.as_uri() or page.problems.append(request.url))
        page.goto(file.as_uri())
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.close()


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("approx_dp", "unproven")]


@pytest.mark.grid
@pytest.mark.parametrize("assay", ["ex_post", "refuted", *OTHERS], indirect=True)
@pytest.mark.parametrize("side", ["private", pytest.param("release", marks=pytest.mark.slow)])
def test_on_every_screen(assay: Assay, side: str, open_page: Any) -> None:
    """Every verdict, on both pages."""
    holds_on_every_screen(render(assay, side=side), open_page)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("refuted", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_audit_of_somebody_elses_generator_on_every_screen(refuted: bool, open_page: Any) -> None:
    holds_on_every_screen(canaries.render(document("planted canaries", refuted=refuted)), open_page)


@pytest.mark.slow
@pytest.mark.parametrize("refuted", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_audit_by_many_runs_on_every_screen(refuted: bool, open_page: Any) -> None:
    holds_on_every_screen(runs.render(runs_document("many runs", refuted=refuted)), open_page)


@pytest.mark.slow
@pytest.mark.parametrize("counted", [0.975, 0.95])
def test_several_audits_on_every_screen(counted: float, open_page: Any) -> None:
    holds_on_every_screen(summary.render(summary_document("several audits", counted=counted)), open_page)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_page_that_an_audit_writes_on_every_screen(
    name: str, tmp_path: Path, open_page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made as the command makes it."""
    monkeypatch.syspath_prepend(str(Path(toy_functions.__file__).parent))
    monkeypatch.setattr(many_runs_power, "REPETITIONS", 20)
    (tmp_path / "made").mkdir()
    holds_on_every_screen(PAGES[name](tmp_path / "made").read_text(encoding="utf-8"), open_page)


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
def test_an_audit_without_a_page_of_its_own_on_every_screen(
    name: str, assays: dict[str, Assay], tmp_path: Path, open_page: Any
) -> None:
    """In the report of a claim."""
    assay = assays["refuted"].model_copy(update={"audits": list(RESULTS[name](tmp_path))})
    holds_on_every_screen(render(assay, side="private"), open_page)


def holds_on_every_screen(html: str, open_page: Any) -> None:
    """Light and dark, wide and narrow, and on paper."""
    for width, colours in ((1200, "light"), (360, "dark"), (320, "light")):
        page = open_page(html, width, colours)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
        assert page.evaluate(CLIPPED) == []
        contrast = page.evaluate(CONTRAST)
        assert contrast["seen"] > 50
        assert contrast["bad"] == []
        drawn = page.evaluate(DRAWN_TEXT)
        assert len(drawn) > 4 or "<svg" not in html
        assert [text for text in drawn if text["outside"] > 2] == []
        if width >= 360:
            assert [text for text in drawn if text["size"] < 12] == []
            assert violations(page) == []
        assert page.problems == []
    page.set_viewport_size({"width": PAPER, "height": 1000})
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER, "a sheet is too narrow"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(CONTRAST)["bad"] == []
    assert violations(page) == []
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.problems == []


def violations(page: Any) -> list[str]:
    """What axe-core, the engine of most checkers of accessibility, finds wrong."""
    result = Axe().run(page).response["violations"]
    return [f"{rule['id']}: {node['html'][:120]}" for rule in result for node in rule["nodes"]]


def test_long_words_do_not_widen_the_page(assays: dict[str, Assay], open_page: Any) -> None:
    long = "x" * 300
    assay = assays["ex_post"].model_copy(
        update={
            "name": long,
            "sentence": long,
            "guarantee": long,
            "threat_model": [long],
            "implementation": {long: long},
            "spent": {long: 1.0},
        }
    )
    page = open_page(render(assay, side="private"), 360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_skip_link_comes_first(assays: dict[str, Assay], open_page: Any) -> None:
    page = open_page(render(assays["ex_post"], side="private"), 1200)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "verdict"


def test_figures_have_their_names_and_their_numbers(assays: dict[str, Assay], open_page: Any) -> None:
    page = open_page(render(assays["ex_post"], side="private"), 360)
    names = page.get_by_role("img", name="Privacy cost of every batch")
    assert names.count() == 1  # of the two drawings, the one that is shown
    page.locator("#figure-batches summary").click()
    assert page.locator("#figure-batches tbody tr").count() == len(assays["ex_post"].batches)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_in_print(assays: dict[str, Assay], open_page: Any) -> None:
    page = open_page(render(assays["ex_post"], side="private"), 1200, "dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator("nav").is_visible()
    assert page.locator("aside").is_visible()
    assert page.locator("#figure-scale .wide").is_visible()
    assert not page.locator("#figure-scale .narrow").is_visible()
