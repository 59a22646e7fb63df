"""The schema of assay.json, and reading one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dpassay.reports.assay import Assay, json_schema, load


def test_what_is_written_meets_the_schema_and_reads_back(assay: Assay, tmp_path: Path) -> None:
    file = tmp_path / "assay.json"
    file.write_text(assay.model_dump_json(), encoding="utf-8")
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.check_schema(validator.schema)
    validator.validate(json.loads(file.read_text()))
    assert load(file) == assay


@pytest.mark.grid
def test_the_schema_refuses_what_is_none(assay: Assay) -> None:
    data = json.loads(assay.model_dump_json())
    changes: list[dict[str, Any]] = [{"schema": 2}, {"verdict": "PASSED"}, {"surprise": 1}, {"bounds": [{}]}]
    for change in changes:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**data, **change}, json_schema())


BOUND = {
    "direction", "value", "method", "rigor", "adjacency", "quantity", "unit", "delta", "at", "confidence", "interval",
    "ceiling", "null_family", "assumptions", "private", "source",
}  # fmt: skip
AUDIT = {
    "name", "game", "attack", "statistics", "conclusion", "trials", "bounds", "rates", "controls", "controls_passed",
    "difference", "control_difference", "p_value", "multiplicity", "details",
}  # fmt: skip
RATE = {"name", "hits", "trials", "rate", "interval", "confidence"}
RISK = {"name", "value", "direction", "rigor", "interval", "at", "assumptions"}
MISSING = {"statement", "best_upper", "claimed"}


def test_the_keys_of_bounds_audits_and_rates_are_fixed(assays: dict[str, Assay]) -> None:
    """They are read off the classes, so a renamed attribute would change a format that others read."""
    document = json.loads(assays["unproven"].model_dump_json())
    parts = json_schema()["$defs"]
    audit = document["audits"][1]
    for name, keys, written in (
        ("Bound", BOUND, document["bounds"][0]),
        ("AuditResult", AUDIT, audit),
        ("Rate", RATE, audit["rates"][0]),
        ("Missing", MISSING, document["missing"]),
        ("Risk", RISK, document["risks"][0]),
    ):
        assert set(parts[name]["properties"]) == keys
        assert parts[name]["additionalProperties"] is False
        assert set(written) == keys
    assert parts["Bound"]["properties"]["direction"]["description"].startswith("whether the exact value is at most")
    assert audit["details"] == {"contradictions": []}


@pytest.mark.parametrize(
    ("place", "given", "says"),
    [
        (
            ("bounds", 0, "direction"),
            "sideways",
            "bounds.0.direction: Input should be 'upper' or 'lower', not 'sideways'",
        ),
        (
            ("bounds", 0, "unit"),
            "cow",
            "bounds.0.unit: unit must be record, user, user(k), group(k) or secret, not",
        ),
        (("bounds", 1, "interval"), [1, 2], "bounds.1: the value of a bound must be an end of its interval"),
        (("bounds", 0, "value"), "much", "bounds.0.value"),
        (("audits", 1, "rates", 0, "hits"), -1, "audits.1.rates.0: hits must be at least 0, not -1"),
        (("audits", 1, "difference"), [1, 0], "audits.1.difference: an interval needs lower ≤ upper, not [1.0, 0.0]"),
        (("audits", 0, "details"), {"contradictions": 5}, "details.contradictions must be a list of sentences, not 5"),
        (("audits", 0, "surprise"), 1, "audits.0.surprise"),
    ],
)
def test_a_bad_part_is_named_with_what_was_given(
    assays: dict[str, Assay], place: tuple[str | int, ...], given: object, says: str, tmp_path: Path
) -> None:
    data = json.loads(assays["approx_dp"].model_dump_json())
    part = data
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = given
    file = tmp_path / "assay.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        load(file)
    assert "\n" not in str(error.value)


def test_every_field_of_the_schema_is_described_or_plain() -> None:
    properties = json_schema()["properties"]
    assert properties["schema"]["const"] == 1
    assert set(Assay.model_fields) - {"schema_"} == set(properties) - {"schema"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "not an assay"),
        (b'{"schema": 7}', "reads schema 1"),
        (b'{"schema": 1, "nme": "x"}', "more"),
    ],
)
def test_a_file_that_is_no_assay_is_refused_in_one_line(content: bytes | None, says: str, tmp_path: Path) -> None:
    file = tmp_path / "assay.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=says) as error:
        load(file)
    assert "\n" not in str(error.value)
    assert str(file) in str(error.value)
