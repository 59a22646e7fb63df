"""Claims with `center: public`: what they may hold, what a run of them records, and runs that began without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from table_model import TableModel

from dpassay.accounting.events import BoundedRangeSelectionDpEvent, ExPostSelectionDpEvent
from dpassay.claims.base import Claim
from dpassay.generators.ledger_run import described
from dpassay.generators.private_inference.claim import PUBLIC_LOGITS
from dpassay.generators.registry import read_claim
from dpassay.mechanisms.primitives.token_sampler import selection_rounding
from dpassay.mechanisms.private_inference.generator import PrivateInference
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
    plain = claim(tmp_path, ("center: public, ", ""))
    assert PUBLIC_LOGITS not in plain.assumptions()
    assert "center" not in described(plain)["parameters"]  # type: ignore[operator]
    mechanisms = [PrivateInference(aggregate="median", center=center, **SETTINGS) for center in (None, "public")]
    assert repr(mechanisms[0]) == repr(mechanisms[1])
    model: Any = TableModel(seed=1)
    plain_digest, centred_digest = (SlotInputs(item, [], model, bytes(32)).digest() for item in mechanisms)
    assert plain_digest != centred_digest
    assert plain_digest == "20a13596692b177a413fbe40a657bf0c26814b84436a347dbd074b08ee35b86a"


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
        claim(tmp_path, ("center: public", "top_k: 3"))


def test_a_center_that_is_none_is_refused_in_a_claim(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="center"):
        claim(tmp_path, ("center: public", "center: mean"))
