"""What CONTRIBUTING.md says a change costs names files that exist, and what is in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_NAMES = {"--embedder", "--kind", "--score", "assay.json", "audits.py", "choices.py", "claim.py", "run.py"}


def test_every_file_and_name_of_a_row_exists() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## What a change costs")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) > 10
    for row in rows:
        named = set(re.findall(r"`([^`]+)`", row)) - NOT_NAMES
        paths = {name for name in named if "/" in name or name.endswith(".toml")}
        for path in paths:
            assert (ROOT / path).exists(), path
        texts = "".join((ROOT / path).read_text() for path in paths if (ROOT / path).is_file())
        product = [path for path in paths if path.endswith((".py", ".pyi", ".j2")) and not path.startswith("tests/")]
        assert len(product) <= 3, row
        for name in named - paths:
            assert re.search(rf"\b{name}\b", texts), f"{name} is in no file of the row: {row}"
