"""Nothing private leaves: assays that differ only in what is private have the same releasable page, byte for byte."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting import Adjacency, Bound
from dpassay.accounting.bounds import Direction, Rigor
from dpassay.base.number_format import format_number
from dpassay.reports import text
from dpassay.reports.assay import PUBLIC_FACTS, Assay
from dpassay.reports.html import render, render_release
from dpassay.reports.release import Accepted, Release, ReleasedLedger, claim_digest, claim_text, releasable

# What may leave, said a second time and independently of the code: everything else is overwritten by the tests.
PUBLIC = {
    "schema",
    "name",
    "created",
    "claim",
    "guarantee",
    "ledger",
    "secrets",
    "digests",
    "output",
    "tested",
    "unfinished",
    "protected",
    "risks",
    "warnings",
    "not_protected",
    "limitations",
    "threat_model",
    "side_channels",
    "versions",
}
PUBLIC_OF_AUDIT = {"name", "game", "attack", "statistics"}
PUBLIC_OF_LEDGER = {"head", "composition", "planned"}
VERDICTS = ("SUPPORTED", "REFUTED", "UNPROVEN")


def with_plan(assay: Assay, planned: bool) -> Assay:
    """`assay` with a ledger that equals the plan, or does not."""
    return assay.model_copy(update={"ledger": assay.ledger.model_copy(update={"planned": planned})})


class Marker:
    """Values that occur nowhere else, and a record of them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.printed: set[str] = set()

    def words(self) -> str:
        word = f"zq{self._random.getrandbits(48):012x}"
        self.printed.add(word)
        return word

    def number(self) -> float:
        value = float(self._random.uniform(1.0, 9.0) * 10 ** self._random.randint(8, 12))
        self.printed |= {format_number(value, way) for way in ("up", "down", "nearest")}
        return value

    def count(self) -> int:
        value = self._random.randint(10**11, 10**12)
        self.printed |= {str(value), text.plain(value)}
        return value

    def bound(self) -> dict[str, Any]:
        return {
            "direction": self._random.choice(["upper", "lower"]),
            "value": self.number(),
            "method": self.words(),
            "rigor": self._random.choice(["certified", "finite_sample", "estimate"]),
            "quantity": self._random.choice(["epsilon", "ex_post_epsilon"]),
            "adjacency": "add_remove",
            "unit": "record",
            "confidence": 0.95,
            "ceiling": self.number(),
            "assumptions": [self.words()],
            "private": True,
        }

    def bounds(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The public rows as they are, and any number of private ones."""
        made = [self.bound() for _ in range(self._random.randint(1, 3))]
        return [row for row in rows if not row["private"]] + made

    def rate(self) -> dict[str, Any]:
        fields = {"rate": 0.5, "interval": [0.1, 0.9], "confidence": 0.95}
        hits, trials = sorted([self.count(), self.count()])
        return {"name": self.words(), "hits": hits, "trials": trials, **fields}

    def audit(self, audit: dict[str, Any]) -> dict[str, Any]:
        private = {
            "conclusion": self.words(),
            "trials": self.count(),
            "bounds": self.bounds(audit["bounds"]),
            "rates": [self.rate()],
            "controls": [self.rate()],
            "controls_passed": self._random.choice([True, False, None]),
            "difference": sorted([self.number(), self.number()]),
            "control_difference": sorted([self.number(), self.number()]),
            "p_value": self.number(),
            "multiplicity": [self.words()],
            "details": {self.words(): self.words(), "contradictions": [self.words()]},
        }
        return {key: audit[key] for key in PUBLIC_OF_AUDIT} | private

    def past(self, past: dict[str, Any]) -> dict[str, Any]:
        """A verdict of the history: of its audits, what was played may leave."""
        private = {
            "created": self.words(),
            "claim": self.words(),
            "guarantee": {"type": self.words()},
            "claimed": self.words(),
            "verdict": self._random.choice(VERDICTS),
            "asked": [self.words()],
            "confidence": self._random.choice([None, 0.975]),
            "audits": [
                {key: audit[key] for key in PUBLIC_OF_AUDIT} | {"bounds": self.bounds([])} for audit in past["audits"]
            ],
            "contradictions": [self.words()],
            "documents": self.words(),
            "versions": {self.words(): self.words()},
        }
        assert set(private) == set(past)
        return private

    def scramble(self, assay: Assay) -> Assay:
        """`assay` with every private field overwritten."""
        data = assay.model_dump(mode="json")
        costs = {key: self.number() for key in ("epsilon", "epsilon_published", "leave_one_out")}
        sizes = {key: self.count() for key in ("slot", "size", "documents", "tokens")}
        private = {
            "verdict": self._random.choice(VERDICTS),
            "verdict_is_private": self._random.choice([True, False]),
            "sentence": self.words(),
            "reasons": [self.words()],
            "refuted_runs": [self.words()],
            "contradictions": [self.words()],
            "private_warnings": [self.words()],
            "missing": {"statement": self.words(), "best_upper": self.number(), "claimed": self.number()},
            "bounds": self.bounds(data["bounds"]),
            "best_upper": self.bound(),
            "best_lower": self.bound(),
            "audits": [self.audit(audit) for audit in data["audits"]],
            "history": [self.past(past) for past in data["history"]],
            "batches": [{**sizes, **costs, "label": self.words()}],
            "tokens": [
                {"position": self.count(), "count": self.count()}
                | {key: self.number() for key in ("mean", "largest", "mean_published")}
            ],
            "spent": {self.words(): self.number()},
            "differences": [
                {"statement": self.words(), "published": self.number(), "recomputed": None, "why": self.words()}
            ],
            "ledger": {key: data["ledger"][key] for key in PUBLIC_OF_LEDGER}
            | {"events": self.count(), "entries": self.count(), "anchored": self._random.choice([True, False])},
            "implementation": {key: value for key, value in data["implementation"].items() if key in PUBLIC_FACTS}
            | {self.words(): self.words(), "input file": self.words()},
        }
        assert set(private) | PUBLIC == set(data)
        return Assay.model_validate(data | private)


@given(seeds=st.tuples(st.integers(), st.integers()))
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_page_does_not_depend_on_what_is_private(assay: Assay, seeds: tuple[int, int]) -> None:
    first, second = Marker(seeds[0]), Marker(seeds[1])
    page = render(first.scramble(assay), side="release")
    assert page == render(second.scramble(assay), side="release")
    assert first.printed
    assert not [marker for marker in first.printed if marker in page]


@given(seed=st.integers())
@examples(12, 30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_projection_does_not_depend_on_what_is_private(assay: Assay, seed: int) -> None:
    assert releasable(Marker(seed).scramble(assay)) == releasable(Marker(seed + 1).scramble(assay))


def test_the_markers_would_be_seen(assay: Assay) -> None:
    marker = Marker(1)
    page = render(marker.scramble(assay), side="private")
    assert sum(word in page for word in marker.printed) > 20


@pytest.mark.parametrize("planned", [True, False])
def test_no_verdict_changes_the_page(assay: Assay, planned: bool) -> None:
    """Every verdict, private or not, with whatever audits found: one page, and no verdict on it."""
    assay = with_plan(assay, planned)
    lower = next(row for row in assay.bounds if row.direction == "lower")
    pages = set()
    for verdict, private, result in itertools.product(VERDICTS, (True, False), (0.0, 97.531)):
        rows = [dataclasses.replace(row, value=result) if row.direction == "lower" else row for row in assay.bounds]
        changed = {
            "verdict": verdict,
            "verdict_is_private": private,
            "sentence": f"{verdict}: by {result}.",
            "bounds": rows,
            "best_upper": assay.best_upper if private else None,
            "best_lower": dataclasses.replace(lower, value=result),
            "audits": [
                dataclasses.replace(audit, bounds=tuple(row for row in rows if row in audit.bounds), conclusion=verdict)
                for audit in assay.audits
            ],
        }
        pages.add(render(assay.model_copy(update=changed), side="release"))
    (page,) = pages
    assert not [verdict for verdict in VERDICTS if verdict in page]


def test_an_ex_post_verdict_is_withheld(assays: dict[str, Assay]) -> None:
    page = render(assays["ex_post"], side="release")
    assert '<p class="word withheld">ex-post claim: verdict withheld</p>' in page
    assert "ε\u00a0≤\u00a017066.7" in page  # a priori: 512 tokens of η = 4·10/1.2, summed
    for figure in ("figure-batches", "figure-tokens", "figure-rates"):
        assert f'"{figure}' not in page


def test_only_an_ex_post_claim_is_called_one(assays: dict[str, Assay]) -> None:
    for name, assay in assays.items():
        for private in (True, False):
            page = render(assay.model_copy(update={"verdict_is_private": private}), side="release")
            assert ("ex-post claim" in page) == (name == "ex_post")


@pytest.mark.parametrize(
    ("name", "headline", "sentence"),
    [
        (
            "approx_dp",
            "The proof reaches the claim",
            "The best certified upper bound, ε ≤ 9.60452 at δ = 1.06268 × 10⁻⁴ (Rényi DP, certified), is within the "
            "claimed ε ≤ 10. The verdict is withheld, because it also depends on attacks on the private data.",
        ),
        (
            "unproven",
            "The proof does not reach the claim",
            "The best certified upper bound, ε ≤ 9.60452 at δ = 1.06268 × 10⁻⁴ (Rényi DP, certified), is above the "
            "claimed ε ≤ 5. The verdict is withheld, because it also depends on attacks on the private data.",
        ),
        (
            "refuted",
            "The proof does not reach the claim",
            "No finite certified upper bound is known that could prove the claimed ε ≤ 3. "
            "The verdict is withheld, because it also depends on attacks on the private data.",
        ),
    ],
)
def test_the_page_says_how_far_the_proof_reaches(
    assays: dict[str, Assay], name: str, headline: str, sentence: str
) -> None:
    released = releasable(assays[name])
    assert (released.headline, released.sentence) == (headline, sentence)
    assert f'<p class="word withheld">{headline}</p>' in render(assays[name], side="release")


def test_a_renyi_claim_is_reached_at_its_own_order(assays: dict[str, Assay]) -> None:
    def at(epsilon: float, order: float = 8.0) -> str:
        claim = assays["approx_dp"].claim | {"guarantee": {"type": "rdp", "alpha": 8.0, "epsilon": epsilon}}
        made = (Direction.UPPER, 1.5, "rdp", Rigor.CERTIFIED, Adjacency.ADD_REMOVE)
        row = Bound(*made, quantity="renyi_epsilon", at=order)
        return releasable(assays["approx_dp"].model_copy(update={"claim": claim, "bounds": [row]})).headline

    assert at(1.5) == "The proof reaches the claim"
    assert at(1.4) == "The proof does not reach the claim"
    assert at(1.5, order=9.0) == "The proof reaches the claim"  # a divergence grows with its order
    assert at(1.5, order=7.0) == "The proof does not reach the claim"


@pytest.mark.parametrize(
    ("quantity", "at", "printed"),
    [("delta", -0.5, ", ε = −0.5<"), ("renyi_epsilon", 8.0, ", order = 8<"), ("r", 1e-4, ", p = 1 × 10⁻⁴<")],
)
def test_a_bound_on_a_function_is_printed_with_its_argument(
    assays: dict[str, Assay], quantity: str, at: float, printed: str
) -> None:
    row = Bound(Direction.UPPER, 0.5, "rdp", Rigor.CERTIFIED, Adjacency.ADD_REMOVE, quantity=quantity, at=at)
    page = render(assays["approx_dp"].model_copy(update={"bounds": [row]}), side="release")
    assert printed in page.replace("\u00a0", " ")


def test_lower_bounds_and_ex_post_bounds_stay_even_where_nothing_marks_them(assay: Assay) -> None:
    unmarked = [dataclasses.replace(row, private=False) for row in assay.bounds]
    released = releasable(assay.model_copy(update={"bounds": unmarked}))
    assert released == releasable(assay)
    assert {(row.direction, row.quantity) for row in released.bounds} == {("upper", "epsilon")}


def test_without_audits_the_page_says_so(assays: dict[str, Assay]) -> None:
    unproven = assays["unproven"]
    bounds = [row for row in unproven.bounds if not row.private]
    page = render(unproven.model_copy(update={"audits": [], "bounds": bounds}), side="release")
    assert "is above the claimed ε\u00a0≤\u00a05. No audit was made." in page


def test_how_many_events_the_ledger_holds_stays(assay: Assay) -> None:
    """Slots are charged together as they fit into memory, so the number of events tells of their sizes."""
    page = render(assay, side="release")
    ledger = assay.ledger.model_copy(update={"events": 731_557, "entries": 918_273})
    assert render(assay.model_copy(update={"ledger": ledger}), side="release") == page
    assert "privacy event" not in page
    assert "equal the plan" in page
    assert not {"events", "entries"} & set(ReleasedLedger.model_fields)
    assert "731557 privacy events in 918273 ledger entries" in render(
        assay.model_copy(update={"ledger": ledger}), side="private"
    )


def test_events_that_differ_from_the_plan_stay(assay: Assay) -> None:
    """And so does whatever was computed from them: the page says that they differ, and no more."""
    assay = with_plan(assay, False)
    other = assay.ledger.model_copy(update={"composition": {"type": "GaussianDpEvent", "noise_multiplier": 7.25}})
    rows = [
        dataclasses.replace(row, value=0.123, interval=None) if row.direction == "upper" else row
        for row in assay.bounds
    ]
    page = render(assay, side="release")
    assert page == render(assay.model_copy(update={"ledger": other, "bounds": rows}), side="release")
    assert "the events charged differ from the plan" in page
    assert releasable(assay).ledger.composition is None


def test_paths_and_columns_of_the_owner_stay(assays: dict[str, Assay]) -> None:
    claim = assays["approx_dp"].claim | {
        "data": {"source": "file", "path": "/home/ann/wards.jsonl", "text": "zqcolumn"},
        "model": "/home/ann/models/llama",
        "surprise": "zqsurprise",
    }
    page = render(assays["approx_dp"].model_copy(update={"claim": claim}), side="release")
    for word in ("ann", "wards", "zqcolumn", "zqsurprise"):
        assert word not in page.replace("planned", "").replace("language", "").replace("channel", "")
    assert "local folder llama" in page


def test_the_head_of_the_ledger_is_printed(assay: Assay) -> None:
    assert assay.ledger.head in render(assay, side="release")


def test_a_release_is_a_document(assay: Assay) -> None:
    released = releasable(assay)
    assert Release.model_validate_json(released.model_dump_json()) == released


def test_both_pages_hold_the_digests(assay: Assay) -> None:
    for side in ("private", "release"):
        page = render(assay, side=side)
        assert "d0" * 32 in page
        assert "c1" * 32 in page


def test_the_history_of_verdicts_stays(assays: dict[str, Assay]) -> None:
    """An earlier bound and when it was found are on the private page only; that the audit was made is public."""
    assay = assays["ex_post"]
    private, public = (render(assay, side=side) for side in ("private", "release"))
    for words in ("Verdicts on this run", "20 November 2026, 17:03 UTC", "0.0625"):
        assert words in private.replace("\u00a0", " ")
        assert words not in public.replace("\u00a0", " ")
    bare = assay.model_copy(update={"audits": [], "history": assay.history[:1]})
    assert [audit.name for audit in releasable(bare).audits] == ["reconstruction"]
    assert "No audit was made" not in render(bare, side="release")


@pytest.mark.parametrize("anchored", [True, False])
def test_whether_the_ledger_was_anchored_stays(anchored: bool, assay: Assay) -> None:
    ledger = assay.ledger.model_copy(update={"anchored": anchored})
    assay = assay.model_copy(update={"ledger": ledger})
    words = "A copy of the head is kept outside" if anchored else "No copy of the head outside of this folder"
    assert words in render(assay, side="private").replace("\u00a0", " ")
    assert words not in render(assay, side="release").replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("ex_post", {}, []),
        ("approx_dp", {}, []),
        (
            "unproven",
            {},
            ["The best certified bound, ε ≤ 9.60452 at δ = 1.06268 × 10⁻⁴ (Rényi DP, certified), is above"],
        ),
        ("refuted", {}, ["No finite certified bound is known"]),
        ("refuted", {"protected": False}, ["protects nothing with these parameters", "No finite certified bound"]),
        ("approx_dp", {"variant": "as_published", "protected": False}, ["follows the published steps to the letter"]),
        ("approx_dp", {"rigor": "estimate"}, ["No finite certified bound is known"]),
        ("ex_post", {"rigor": "estimate"}, ["No finite certified bound is known"]),
    ],
)
def test_what_falls_short_is_read_off_public_facts(
    assays: dict[str, Assay], name: str, changes: dict[str, Any], expected: list[str]
) -> None:
    assay = assays[name]
    update: dict[str, Any] = {"protected": changes.get("protected", True)}
    if "variant" in changes:
        update["claim"] = {**assay.claim, "variant": changes["variant"]}
    if "rigor" in changes:
        update["bounds"] = [
            dataclasses.replace(row, rigor=Rigor(changes["rigor"])) if row.direction == "upper" else row
            for row in assay.bounds
        ]
    result = releasable(assay.model_copy(update=update)).shortfalls
    assert len(result) == len(expected)
    assert all(words in line for words, line in zip(expected, result, strict=True))


def test_a_reason_is_printed_as_text(assays: dict[str, Assay]) -> None:
    release = releasable(assays["unproven"])
    assert "Released although" not in render_release(release)
    reason = 'because of "<b>this</b>" & that'
    page = render_release(release.model_copy(update={"accepted": Accepted(reason=reason)}))
    assert "because of &#34;&lt;b&gt;this&lt;/b&gt;&#34; &amp; that" in page.replace("\u00a0", " ")
    assert "is above the claim" in page.replace("\u00a0", " ")


def test_the_digest_of_the_claim_is_that_of_its_file(assay: Assay) -> None:
    text = claim_text(assay.claim)
    assert json.loads(text) == releasable(assay).claim
    assert claim_digest(assay.claim) == hashlib.sha256(text.encode()).hexdigest()
