"""What guides and examples import is public: folders export it, and no module of theirs hides it."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
EXAMPLES = tuple(sorted(path for kind in ("py", "ipynb") for path in (ROOT / "examples").rglob(f"*.{kind}")))
FOLDERS = tuple(sorted(path for path in ROOT.glob("*/**/__init__.pyi") if not {".venv", "build"} & {*path.parts}))
PLUGINS = {"dpassay.opacus_accountant"}
"""Modules that are imported for what they register."""


def package(stub: Path) -> str:
    folder = stub.parent.relative_to(ROOT)
    return ".".join(["dpassay", *folder.parts[folder.parts[0] == "app" :]])


def exports(stub: Path) -> dict[str, str]:
    """The exported names of a folder, with the module that each comes from; empty for one that is a module."""
    nodes = (node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom))
    return {alias.name: node.module or "" for node in nodes for alias in node.names}


PUBLIC = {package(stub): exports(stub) for stub in FOLDERS}


def code_of(page: Path) -> list[str]:
    if page.suffix == ".py":
        return [page.read_text()]
    if page.suffix == ".ipynb":
        return [
            "".join(cell["source"]) for cell in json.loads(page.read_text())["cells"] if cell["cell_type"] == "code"
        ]
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def hidden(source: str) -> list[str]:
    """What code imports of dpassay that no folder exports."""
    results = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names if alias.name.split(".")[0] == "dpassay"]
            results += [module for module in modules if module not in {*PUBLIC, *PLUGINS}]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dpassay":
            module = str(node.module)
            results += [f"{module}.{item.name}" for item in node.names if item.name not in PUBLIC.get(module, {})]
    return results


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: str(path.relative_to(ROOT)))
def test_guides_and_examples_import_public_names_alone(path: Path) -> None:
    assert [name for code in code_of(path) for name in hidden(code)] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from dpassay.accounting import PureDP", []),
        ("from dpassay.accounting.guarantees import PureDP", ["dpassay.accounting.guarantees.PureDP"]),
        ("from dpassay.accounting import _PureDP", ["dpassay.accounting._PureDP"]),
        ("import dpassay.accounting", []),
        ("import dpassay.accounting.guarantees", ["dpassay.accounting.guarantees"]),
    ],
)
def test_what_is_public(source: str, expected: list[str]) -> None:
    assert hidden(source) == expected


@pytest.mark.parametrize("folder", PUBLIC)
def test_a_folder_exports_what_it_says(folder: str) -> None:
    """A name that is also that of a module here would mean one or the other, whichever is imported first."""
    imported, files = importlib.import_module(folder), {path.stem for path in _folder(folder).iterdir()}
    assert set(imported.__all__) == set(PUBLIC[folder])
    for name, module in PUBLIC[folder].items():
        assert getattr(imported, name) is not None
        assert not name.startswith("_")
        assert not module or name not in files, f"{name} is a module of {folder}, too"


def _folder(package_: str) -> Path:
    return next(stub.parent for stub in FOLDERS if package(stub) == package_)
