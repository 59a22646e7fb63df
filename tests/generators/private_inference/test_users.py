"""Claims whose unit is a user: audits and pages count users, and only records that were used are counted as cut."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command
import pytest
import yaml
from inference_oracle import hashed

from dpassay.attacks.private_inference.leave_one_out import reruns
from dpassay.generators.private_inference import audits as evidence
from dpassay.mechanisms.models.language_model import LanguageModel

USERS, RECORDS = 12, 30
LONG = "the patient came twice and then " * 30


@dataclass(frozen=True)
class Assayed:
    """An assay with its private page, and the key of its batching."""

    document: dict[str, Any]
    page: str
    key: bytes
    taken_out: Sequence[int] = ()

    @property
    def cut(self) -> str:
        """What is said of records that were cut."""
        return str(self.document["implementation"]["records that were cut to the public length"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, make_model: Callable[..., Path]) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "small", "llama")


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Assayed:
    chosen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:

        def seen(*given: Any) -> Any:
            chosen.extend(given[2])
            return reruns(*given)

        patch.setattr(evidence, "reruns", seen)
        result = assayed(tmp_path_factory.mktemp("users"), model, audits=["leave_one_out"])
    return dataclasses.replace(result, taken_out=chosen)


def assayed(folder: Path, model: Path, audits: Sequence[str] = (), **changes: Any) -> Assayed:
    """An assay of a claim about 30 records of 12 users, every third record long."""
    rows = [{"text": f"{LONG * (i % 3 == 0)}note {i}", "user": f"user {i % USERS}", "id": i} for i in range(RECORDS)]
    (folder / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parameters = {"aggregate": "median", "clip": 4.0, "temperature": 2.0, "batch_size": 4, "tokens": 4}
    claim = {
        "name": "small",
        "data": {"source": "file", "path": "notes.jsonl", "user": "user", "id": "id"},
        "unit": "user",
        "mechanism": "private_inference",
        "parameters": {**parameters, "document_tokens": 4} | changes,
        "public": {"records": USERS, "context_tokens": 40},
        "guarantee": {"type": "pure_dp", "epsilon": 1000.0},
        "audits": list(audits),
    }
    (folder / "claim.yaml").write_text(yaml.safe_dump(claim))
    done = command.run(
        "assay", folder / "claim.yaml", "-o", folder / "out", "--model", model, "--device", "cpu", "--json"
    )
    assert done.returncode == 0, done.stderr
    private = folder / "out" / "private"
    key = bytes.fromhex((private / "batching-key.txt").read_text().strip())
    return Assayed(json.loads(done.stdout), (private / "report.html").read_text(), key)


def used(key: bytes) -> set[int]:
    """The record of each user that the batching takes: that of the smallest keyed hash."""
    of_user: dict[int, list[int]] = {}
    for record in range(RECORDS):
        of_user.setdefault(record % USERS, []).append(record)
    return {min(own, key=lambda record: hashed(key, "record-of-user", str(record))) for own in of_user.values()}


def test_leaving_one_out_counts_users(audited: Assayed) -> None:
    (audit,) = audited.document["audits"]
    assert audit["trials"] == USERS
    assert audit["multiplicity"][0].startswith(f"largest over {USERS} users in 3 batches")
    assert audit["multiplicity"][1].startswith("largest over 4 users taken out")
    assert "of a user within its batch" in audit["conclusion"]
    assert "was this user in the data" in audit["game"]
    assert len(audit["details"]["rerun"]) == 4
    assert len({record % USERS for record in audited.taken_out}) == 4, "four users, not two records of one"


def test_pages_count_users(audited: Assayed) -> None:
    assert f"The number of users ({USERS})" in audited.page
    assert re.search(rf">Users</th><td[^>]*>{USERS}<", audited.page)
    times = r"\d{4}-\d{2}-\d{2}|\d{1,2}:\d{2}(:\d{2})?"  # which may have that number
    page = re.sub(rf"<svg.*?</svg>|<style.*?</style>|{times}", "", audited.page, flags=re.S)
    assert not re.search(rf"\b{RECORDS}\b(?! more were not used)", page)


def test_cut_records_are_those_that_were_used(audited: Assayed) -> None:
    cut = sum(record % 3 == 0 for record in used(audited.key))
    assert audited.cut == f"{cut} of {USERS}; {RECORDS - USERS} more were not used"


def test_no_record_is_tokenised_again_for_the_report(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    encode = LanguageModel.encode

    def counted(model: LanguageModel, text: str) -> list[int]:
        calls[text] += 1
        return encode(model, text)

    monkeypatch.setattr(LanguageModel, "encode", counted)
    result = assayed(tmp_path, model)
    own = [f"{LONG * (i % 3 == 0)}note {i}" for i in range(RECORDS)]
    assert [calls[text] for text in own] == [int(i in used(result.key)) for i in range(RECORDS)]


def test_records_of_slots_that_did_not_run_are_not_used(tmp_path: Path, model: Path) -> None:
    assert assayed(tmp_path, model, slot_threshold=1e6).cut == f"0 of 0; {RECORDS} more were not used"
