"""The code of the README runs and prints what it says; its claim is the one that ships."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
LINES = 150
"""Of the README, at most."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= LINES


def test_python_prints_what_the_next_block_says(tmp_path: Path) -> None:
    code, expected = blocks(README, "python"), blocks(README, "text")
    assert len(code) == len(expected) >= 1
    command = [sys.executable, "-c", "\n".join(code)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout == "".join(expected)


def test_the_shown_claim_is_the_shipped_one() -> None:
    shown = yaml.safe_load(blocks(README, "yaml")[0])
    shipped = yaml.safe_load((ROOT / "examples" / "claims" / "keys-median.yaml").read_text())
    assert {key: shipped[key] for key in shown if key != "parameters"} == {
        key: shown[key] for key in shown if key != "parameters"
    }
    assert shown["parameters"].items() <= shipped["parameters"].items()


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", README.read_text()):
        assert (ROOT / link.partition("#")[0]).exists(), link


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make (\w+)", README.read_text()):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
