"""Nothing private leaves: assays that differ only in what is private have the same releasable page, byte for byte."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cupel.reports import text
from cupel.reports.assay import PUBLIC_FACTS, Assay
from cupel.reports.html import render
from cupel.reports.release import Release, releasable

# What may leave, said a second time and independently of the code: everything else is overwritten by the tests.
PUBLIC = {
    "schema",
    "name",
    "created",
    "claim",
    "guarantee",
    "verdict_is_private",
    "ledger",
    "not_protected",
    "limitations",
    "threat_model",
    "side_channels",
    "versions",
}
PUBLIC_OF_AUDIT = {"name", "game", "attack", "statistics"}
PUBLIC_OF_LEDGER = {"head", "events", "composition", "planned"}


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
        value = self._random.uniform(1.0, 9.0) * 10 ** self._random.randint(8, 12)
        self.printed |= {text.number(value, way) for way in ("up", "down", "nearest")}  # type: ignore[arg-type]
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
        return {"name": self.words(), "hits": self.count(), "trials": self.count(), **fields}

    def audit(self, audit: dict[str, Any]) -> dict[str, Any]:
        private = {
            "conclusion": self.words(),
            "trials": self.count(),
            "bounds": self.bounds(audit["bounds"]),
            "rates": [self.rate()],
            "controls": [self.rate()],
            "controls_passed": self._random.choice([True, False, None]),
            "difference": [self.number(), self.number()],
            "control_difference": [self.number(), self.number()],
            "p_value": self.number(),
            "multiplicity": [self.words()],
            "details": {self.words(): self.words(), "errors": [self.words()]},
        }
        return {key: audit[key] for key in PUBLIC_OF_AUDIT} | private

    def scramble(self, assay: Assay) -> Assay:
        """`assay` with every private field overwritten."""
        data = assay.model_dump(mode="json")
        costs = {key: self.number() for key in ("epsilon", "epsilon_published", "leave_one_out")}
        sizes = {key: self.count() for key in ("slot", "size", "documents", "tokens")}
        verdicts = ["SUPPORTED", "REFUTED", "UNPROVEN"] if assay.verdict_is_private else ["UNPROVEN", "REFUTED"]
        private = {
            "verdict": "SUPPORTED" if self._shown(assay) else self._random.choice(verdicts),
            "sentence": self.words(),
            "reasons": [self.words()],
            "missing": {"statement": self.words(), "best_upper": self.number(), "claimed": self.number()},
            "bounds": self.bounds(data["bounds"]),
            "best_upper": self.bound(),
            "best_lower": self.bound(),
            "audits": [self.audit(audit) for audit in data["audits"]],
            "batches": [{**sizes, **costs, "label": self.words()}],
            "tokens": [
                {"position": self.count(), "count": self.count()}
                | {key: self.number() for key in ("mean", "largest", "mean_published")}
            ],
            "spent": {self.words(): self.number()},
            "differences": [
                {"statement": self.words(), "published": self.number(), "recomputed": None, "why": self.words()}
            ],
            "ledger": {key: data["ledger"][key] for key in PUBLIC_OF_LEDGER} | {"entries": self.count()},
            "implementation": {key: value for key, value in data["implementation"].items() if key in PUBLIC_FACTS}
            | {self.words(): self.words(), "input file": self.words()},
        }
        assert set(private) | PUBLIC == set(data)
        return Assay.model_validate(data | private)

    def _shown(self, assay: Assay) -> bool:
        return releasable(assay).verdict == "SUPPORTED"


@given(seeds=st.tuples(st.integers(), st.integers()))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_page_does_not_depend_on_what_is_private(assay: Assay, seeds: tuple[int, int]) -> None:
    first, second = Marker(seeds[0]), Marker(seeds[1])
    page = render(first.scramble(assay), side="release")
    assert page == render(second.scramble(assay), side="release")
    assert first.printed
    assert not [marker for marker in first.printed if marker in page]


@given(seed=st.integers())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_projection_does_not_depend_on_what_is_private(assay: Assay, seed: int) -> None:
    assert releasable(Marker(seed).scramble(assay)) == releasable(Marker(seed + 1).scramble(assay))


def test_the_markers_would_be_seen(assay: Assay) -> None:
    marker = Marker(1)
    page = render(marker.scramble(assay), side="private")
    assert sum(word in page for word in marker.printed) > 20


def test_an_ex_post_verdict_is_withheld(assays: dict[str, Assay]) -> None:
    page = render(assays["ex_post"], side="release")
    assert "ex-post claim: verdict withheld" in page
    assert "ε\u00a0≤\u00a017\u202f067" in page  # a priori: 512 tokens of η = 4·10/1.2, summed
    for word in ("SUPPORTED ", "figure-batches", "figure-tokens", "figure-rates"):
        assert f">{word}" not in page
        assert f'"{word}' not in page
    assert '<p class="word withheld">' in page


def test_a_verdict_that_needs_no_private_bound_is_shown(assays: dict[str, Assay]) -> None:
    released = releasable(assays["approx_dp"])
    assert released.verdict == "SUPPORTED"
    assert "0.214" not in render(assays["approx_dp"], side="release")


@pytest.mark.parametrize("name", ["refuted", "unproven"])
def test_whether_audits_refute_is_withheld(assays: dict[str, Assay], name: str) -> None:
    released = releasable(assays[name])
    assert released.verdict is None
    assert released.sentence.startswith("Verdict withheld between UNPROVEN and REFUTED")


def test_without_audits_unproven_is_public(assays: dict[str, Assay]) -> None:
    unproven = assays["unproven"]
    bounds = [row for row in unproven.bounds if not row.private]
    assert releasable(unproven.model_copy(update={"audits": [], "bounds": bounds})).verdict == "UNPROVEN"


def test_a_public_bound_that_refutes_is_shown(assays: dict[str, Assay]) -> None:
    refuted = assays["refuted"]
    bounds = [row.model_copy(update={"private": False}) for row in refuted.bounds]
    assert releasable(refuted.model_copy(update={"bounds": bounds})).verdict == "REFUTED"


def test_supported_is_never_shown_where_an_audit_refutes(assays: dict[str, Assay]) -> None:
    contradicted = assays["approx_dp"].model_copy(update={"verdict": "REFUTED"})
    released = releasable(contradicted)
    assert released.verdict is None
    assert released.sentence == "Verdict withheld: it rests on audits of the private data."


def test_events_that_differ_from_the_plan_stay(assays: dict[str, Assay]) -> None:
    assay = assays["approx_dp"]
    ledger = assay.ledger.model_copy(update={"planned": False})
    released = releasable(assay.model_copy(update={"ledger": ledger}))
    assert released.ledger.events is None
    assert released.ledger.composition is None
    assert released.ledger.head == assay.ledger.head


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
