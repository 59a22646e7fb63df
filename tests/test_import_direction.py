"""Imports go down the floors, never up, and never sideways between generators."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {"accounting": 1, "mechanisms": 2, "attacks": 3, "audits": 4, "reports": 5, "cupel": 6}
GENERATORS = {"private_inference", "secret_evolution", "aug_pe", "dataset_vectors", "two_stage"}


def imported_modules(source: str) -> list[str]:
    """Absolute names of everything that `source` imports, inside functions too."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def floor_of(module: str) -> int:
    parts = module.split(".")
    return FLOORS.get(parts[1], FLOORS["cupel"]) if len(parts) > 1 else FLOORS["cupel"]


def violations(folder: str, file_name: str, source: str) -> list[str]:
    found = []
    for module in imported_modules(source):
        if module.split(".")[0] != "cupel" or module == "cupel.__version__":
            continue
        if floor_of(module) > FLOORS[folder]:
            found.append(f"{folder}/{file_name} imports {module}, which is above it")
        other = next((part for part in module.split(".")[2:] if part in GENERATORS), None)
        if folder == "mechanisms" and other and Path(file_name).stem in GENERATORS - {other}:
            found.append(f"{folder}/{file_name} imports {module}, a sibling")
    return found


@pytest.mark.parametrize("folder", FLOORS)
def test_imports_go_down(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    found = [v for file in files for v in violations(folder, str(file.relative_to(ROOT / folder)), file.read_text())]
    assert not found, "\n".join(found)


def test_the_check_can_fail() -> None:
    assert violations("accounting", "x.py", "from cupel.mechanisms import records")
    assert violations("mechanisms", "two_stage.py", "def f():\n    import cupel.mechanisms.private_inference.generator")
    assert violations("attacks", "x.py", "from cupel.jobs.assay import run")
    assert not violations(
        "attacks", "x.py", "from cupel.mechanisms.private_inference.generator import PrivateInference"
    )


def test_accounting_knows_neither_torch_nor_language_models() -> None:
    for file in (ROOT / "accounting").rglob("*.py"):
        roots = {module.split(".")[0] for module in imported_modules(file.read_text())}
        assert not roots & {"torch", "transformers", "tokenizers", "safetensors"}, file
