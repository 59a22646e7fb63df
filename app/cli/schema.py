"""`dpassay schema`: the JSON Schemas of the files that dpassay reads and writes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from dpassay.base.errors import InputError
from dpassay.cli.completion import complete
from dpassay.cli.options import Json, Quiet

OF = ("claim", "assay", "certificate")
"""What has a schema."""


def schema(
    of: Annotated[str, typer.Argument(help="claim, assay or certificate", autocompletion=complete(OF))] = "claim",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prints the JSON Schema of a claim file, of assay.json or of a certificate; --json prints it on one line."""
    if of not in OF:
        raise InputError(f"the schema must be {', '.join(OF[:-1])} or {OF[-1]}, not {of!r}")
    if of == "claim":
        from dpassay.generators.registry import json_schema
    elif of == "assay":
        from dpassay.reports.assay import json_schema
    else:
        from dpassay.reports.certificate import json_schema
    if json_ or not quiet:
        print(json.dumps(json_schema(), indent=None if json_ else 2, ensure_ascii=False))
