"""The schema of `assay.json`, and reading one."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cupel.reports.assay import SCHEMA_VERSION, Assay

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of `assay.json`."""
    schema = Assay.model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": DIALECT, "$comment": f"cupel assay, schema version {SCHEMA_VERSION}", **schema}


def load(path: str | PathLike[str]) -> Assay:
    """Reads an `assay.json`.

    Raises:
        ValueError: one line that says what is wrong with the file: it cannot be read, it is not JSON, it was written
            by another version, or a field of it is missing, unknown or impossible.
    """
    file = Path(path)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file}: is not UTF-8 text; an assay is the assay.json that `cupel assay` writes") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: is not JSON: {error.msg} at line {error.lineno}") from None
    except RecursionError:
        raise ValueError(f"{file}: is nested too deeply to be an assay") from None
    if not isinstance(data, dict) or "schema" not in data:
        raise ValueError(f"{file}: is not an assay: it has no `schema` number")
    if data["schema"] != SCHEMA_VERSION:
        raise ValueError(f"{file}: has schema {data['schema']!r}; this version of cupel reads schema {SCHEMA_VERSION}")
    try:
        return Assay.model_validate(data)
    except ValidationError as error:
        first, *rest = error.errors(include_url=False, include_input=False)
        place = ".".join(str(part) for part in first["loc"])
        more = f" (and {len(rest)} more)" if rest else ""
        raise ValueError(f"{file}: {place}: {first['msg']}{more}") from None
