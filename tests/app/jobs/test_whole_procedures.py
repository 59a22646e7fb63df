"""The runs of the guide's table of whole procedures, on the command line and in a claim."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import written

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "accounting.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| ([^|]+) \| `([^`]+)` \| `([^`]+)`(?:; `([^`]+)`)? \| ([\d.]+) \|$",
    GUIDE.split("\n## Whole procedures\n")[1].split("\n## ")[0],
    re.MULTILINE,
)


def test_all_rows_are_read() -> None:
    assert len(ROWS) == 6


@pytest.mark.parametrize(("what", "command", "part", "more", "shown"), ROWS, ids=[row[0] for row in ROWS])
def test_the_command_and_the_claim_have_the_bound(
    what: str, command: str, part: str, more: str, shown: str, tmp_path: Path
) -> None:
    (row,) = written("compare", *command.split(), "--delta", "1e-5", "--method", "lattice")["rows"]
    claim = [
        "name: run",
        "mechanism: declared",
        *([more] if more else []),
        f"parameters: {{events: [{{name: run, {part}}}]}}",
        f"guarantee: {{type: approx_dp, epsilon: {shown}, delta: 1.0e-5}}",
    ]
    (tmp_path / "claim.yaml").write_text("\n".join(claim))
    bounds = {bound["method"]: bound for bound in written("account", tmp_path / "claim.yaml")["bounds"]}
    for value in (row["value"], bounds["lattice"]["value"]):
        assert value <= float(shown) <= 1.002 * value
