"""The schema of assay.json, and reading one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cupel.reports import schema
from cupel.reports.assay import Assay


def test_what_is_written_meets_the_schema_and_reads_back(assay: Assay, tmp_path: Path) -> None:
    file = tmp_path / "assay.json"
    file.write_text(assay.model_dump_json(), encoding="utf-8")
    validator = jsonschema.Draft202012Validator(schema.json_schema())
    validator.check_schema(validator.schema)
    validator.validate(json.loads(file.read_text()))
    assert schema.load(file) == assay


def test_the_schema_refuses_what_is_none(assay: Assay) -> None:
    data = json.loads(assay.model_dump_json())
    changes: list[dict[str, Any]] = [{"schema": 2}, {"verdict": "PASSED"}, {"surprise": 1}, {"bounds": [{}]}]
    for change in changes:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**data, **change}, schema.json_schema())


def test_every_field_of_the_schema_is_described_or_plain() -> None:
    properties = schema.json_schema()["properties"]
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
        schema.load(file)
    assert "\n" not in str(error.value)
    assert str(file) in str(error.value)
