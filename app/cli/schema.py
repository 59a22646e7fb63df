"""`dpassay schema`: the JSON Schemas of the files that dpassay reads and writes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from dpassay.cli.options import Json, Quiet


def schema(
    of: Annotated[str, typer.Argument(help="claim, assay or certificate")] = "claim",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prints the JSON Schema of a claim file, of assay.json or of a certificate; --json prints it on one line."""
    if of == "claim":
        from dpassay.generators.registry import json_schema
    elif of == "assay":
        from dpassay.reports.assay import json_schema
    elif of == "certificate":
        from dpassay.reports.certificate import json_schema
    else:
        from dpassay.base.errors import InputError

        raise InputError(f"the schema must be claim, assay or certificate, not {of!r}")
    if json_ or not quiet:
        print(json.dumps(json_schema(), indent=None if json_ else 2, ensure_ascii=False))
