"""Claims with `center: public`: what they may hold, what a run of them records, and runs that began without it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

import command
import pytest
from table_model import TableModel

from dpassay.accounting.events import BoundedRangeSelectionDpEvent, ExPostSelectionDpEvent
from dpassay.claims.base import Claim
from dpassay.generators.ledger_run import begun_parameters, described
from dpassay.generators.private_inference.claim import PUBLIC_LOGITS, PrivateInferenceClaim
from dpassay.generators.registry import read_claim
from dpassay.mechanisms.primitives.token_sampler import selection_rounding
from dpassay.mechanisms.private_inference.generator import CENTRED_CLIP, PrivateInference
from dpassay.mechanisms.private_inference.slot_inputs import SlotInputs

CLAIMS = Path(__file__).resolve().parents[3] / "examples" / "claims"
SETTINGS: dict[str, Any] = {"clip": 3.0, "temperature": 1.2, "batch_size": 6, "tokens": 4, "records": 24}


def claim(folder: Path, *changes: tuple[str, str]) -> Claim:
    text = (CLAIMS / "notes-centred.yaml").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "claim.yaml"
    path.write_text(text, encoding="utf-8")
    return read_claim(path)


def test_the_assumption_and_the_record_of_a_run_name_the_center(tmp_path: Path) -> None:
    centred = claim(tmp_path)
    assert PUBLIC_LOGITS in centred.assumptions()
    assert described(centred)["parameters"]["center"] == "public"  # type: ignore[call-overload, index]
    assert "changes the prediction without a record" in centred.mechanism_in_words(centred.described()["parameters"])


def test_runs_of_earlier_versions_are_recorded_as_they_were(tmp_path: Path) -> None:
    """Neither the claim in the ledger nor the digest of the inputs knows a field that is not set."""
    plain = claim(tmp_path, ("center: public, ", "center: none, "))
    assert PUBLIC_LOGITS not in plain.assumptions()
    assert "changes the prediction" not in plain.mechanism_in_words(plain.described()["parameters"])
    assert "center" not in described(plain)["parameters"]  # type: ignore[operator]
    mechanisms = [PrivateInference(aggregate="median", center=center, **SETTINGS) for center in (None, "public")]
    assert repr(mechanisms[0]) == repr(mechanisms[1])
    model: Any = TableModel(seed=1)
    plain_digest, centred_digest = (SlotInputs(item, [], model, bytes(32)).digest() for item in mechanisms)
    assert plain_digest != centred_digest
    assert plain_digest == "20a13596692b177a413fbe40a657bf0c26814b84436a347dbd074b08ee35b86a"


@pytest.mark.parametrize(
    ("stated", "centred"),
    [
        ("aggregate: mean, clip: 4.0", True),
        ("aggregate: median, clip: 5.0", True),
        ("aggregate: median, clip: 4.0, top_k: 3", True),
        ("aggregate: median, clip: 5.25", False),
        ("aggregate: mean, clip: 10.25", False),
        ("aggregate: mean, clip: 4.0, anchor: true", False),
        ("aggregate: none, clip: 4.0", False),
        ("aggregate: mean, clip: 4.0, center: none", False),
    ],
)
def test_what_is_left_out_is_public_where_a_small_clip_allows_it(stated: str, centred: bool, tmp_path: Path) -> None:
    found = claim(tmp_path, ("aggregate: mean, center: public, clip: 4.0", stated))
    assert isinstance(found, PrivateInferenceClaim)
    mechanism = found.generator()
    assert (mechanism.center == "public") is centred
    assert (PUBLIC_LOGITS in found.assumptions()) is centred
    if "center" not in stated:
        possible = centred or stated.endswith("clip: 5.25")
        with contextlib.nullcontext() if possible else pytest.raises(ValueError, match=r"center|clip/temperature"):
            dataclasses.replace(mechanism, center="public")
    resolved = found.resolved(lambda: None)
    assert resolved.parameters.center == ("public" if centred else "none")
    assert resolved.generator() == mechanism


def test_rounding_costs_hardly_anything_where_claims_have_a_center_by_default() -> None:
    """Of the largest clip, and beyond it so much that a token of 2c/τ = 16.7 costs 0.007 more."""
    for temperature in (0.5, 1.0, 3.0):
        settings = SETTINGS | {"clip": CENTRED_CLIP * temperature, "temperature": temperature, "center": "public"}
        assert 2 * PrivateInference(aggregate="median", **settings).rounding < 2e-5
    far = SETTINGS | {"clip": 10.0, "temperature": 1.2, "center": "public"}
    assert 2 * PrivateInference(aggregate="median", **far).rounding > 7e-3


def test_as_published_has_no_center(tmp_path: Path) -> None:
    published = claim(tmp_path, ("center: public, ", ""), ("variant: sound", "variant: as_published"))
    assert isinstance(published, PrivateInferenceClaim)
    assert published.center is None


SMALL = """
name: keys
data: {source: builtin, name: keys}
mechanism: private_inference
parameters: {aggregate: median, CENTERclip: 4.0, temperature: 1.0, batch_size: 6, tokens: 4, prefix: "My key is "}
public: {records: 12, context_tokens: 26}
guarantee: {type: pure_dp, epsilon: 1.0e+6}
"""


def test_a_run_that_began_without_a_center_is_resumed_without_one(tmp_path: Path) -> None:
    """Ledgers of versions in which plain clips were the default do not name them; now they are left out if stated."""
    path, ledger = tmp_path / "claim.yaml", tmp_path / "run" / "private" / "ledger.sqlite"

    def generate(center: str, folder: str = "run") -> Any:
        path.write_text(SMALL.replace("CENTER", center))
        return command.run("generate", path, "-o", tmp_path / folder, "--json", "-q")

    first = generate("center: none, ")
    assert first.returncode == 0, first.stderr
    assert "center" not in (begun_parameters(ledger.parent, "keys") or {"center": "?"})
    again = generate("")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["head"] == json.loads(first.stdout)["head"]
    assert generate("center: public, ").returncode == 2
    new = generate("", "new")
    assert new.returncode == 0, new.stderr
    assert (begun_parameters(tmp_path / "new" / "private", "keys") or {})["center"] == "public"
    assert generate("", "new").returncode == 0
    assert generate("center: none, ", "new").returncode == 2
    assert begun_parameters(tmp_path / "nowhere", "keys") is begun_parameters(ledger.parent, "other") is None


def test_top_k_is_recorded_where_it_is_set(tmp_path: Path) -> None:
    kept = claim(tmp_path, ("center: public, ", "center: public, top_k: 20, "))
    assert described(kept)["parameters"]["top_k"] == 20  # type: ignore[call-overload, index]
    assert "top_k" not in described(claim(tmp_path))["parameters"]  # type: ignore[operator]
    assert kept.mechanism_in_words({"top_k": 20, "center": "public"}).endswith("without a record are never drawn")
    few, every = kept.generator(), claim(tmp_path).generator()
    assert isinstance(few, PrivateInference)
    assert isinstance(every, PrivateInference)
    assert (few.top_k, every.top_k) == (20, None)
    assert few.plan() == every.plan()


def test_the_plan_is_that_of_the_clip() -> None:
    """2c/(sτ) a token of a mean, 2c/τ of a median; the sampler's rounding covers the public logits too."""
    rounding = selection_rounding(3.0 + 12.0, 1.2)
    mean = PrivateInference(aggregate="mean", center="public", **SETTINGS).token_event()
    assert isinstance(mean, BoundedRangeSelectionDpEvent)
    assert mean.eta == pytest.approx(2 * 3 / (6 * 1.2), rel=1e-12)
    median = PrivateInference(aggregate="median", center="public", **SETTINGS)
    event = median.token_event()
    assert isinstance(event, ExPostSelectionDpEvent)
    assert event.eta == pytest.approx(2 * 3 / 1.2, rel=1e-12)
    assert event.rounding == pytest.approx(rounding, rel=1e-6)
    assert median.tail == pytest.approx(12.0, abs=2.0**-24)
    replaced = PrivateInference(aggregate="median", center="public", **{**SETTINGS, "records_per_context": 2})
    assert replaced.token_event().eta == pytest.approx(4 * 3 / 1.2, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregate": "none"}, "center is a parameter of aggregates mean and median, not none"),
        ({"aggregate": "mean", "anchor": True}, "anchor adds the public logits that center already adds"),
        ({"aggregate": "mean", "variant": "as_published"}, "center is no part of variant as_published"),
        ({"aggregate": "median", "clip": 13.0}, "clip/temperature must be at most 10, not 10.8333"),
        ({"aggregate": "median", "center": "private"}, "center must be"),
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrivateInference(**{**SETTINGS, "center": "public", **changes})


def test_top_k_without_a_center_is_refused_in_a_claim(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="top_k keeps tokens that are likely without a record, so it needs center"):
        claim(tmp_path, ("center: public", "center: none, top_k: 3"))


def test_a_center_that_is_none_is_refused_in_a_claim(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="center"):
        claim(tmp_path, ("center: public", "center: mean"))
