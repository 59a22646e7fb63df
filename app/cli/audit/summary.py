"""`dpassay audit summary`: several audits of one generator on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.base import defaults
from dpassay.base.terminal import say
from dpassay.cli.options import Confidence, Json, Quiet, call, conclude

EXAMPLE = "Example: dpassay audit summary audit runs private/table-audit.json -o summary"


def summary(
    audits: Annotated[
        list[Path],
        typer.Argument(
            metavar="AUDIT…",
            help="Every audit that was made of the generator: folders of planned audits with a bound, and JSON files "
            "of `table`, `text` and `membership`.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder of the page; private.")],
    confidence: Confidence = defaults.CONFIDENCE,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Writes one page about several audits of one generator, DIR/summary.html, and DIR/summary.json.

    The errors that were declared for the audits must add up to at most 1 − --confidence. If they do not, each audit
    counts at its share, in proportion to what was declared, and its bounds are computed again. Exits with 1 if all
    bounds together refute the claim.
    """
    options = locals()
    from dpassay import audit
    from dpassay.jobs.audit_summary import PAGE, in_words

    result = call(audit.summary, options)

    def words() -> None:
        for line in in_words(result):
            say(line)
        say(f"Page: {output / PAGE}")

    conclude(result, words, json_, quiet)
