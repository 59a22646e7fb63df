"""Imports go down the floors, never up, never sideways between generators, and never in a cycle."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from cupel.generators.registry import CLAIMS

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {"accounting": 1, "mechanisms": 2, "attacks": 3, "audits": 4, "reports": 5, "front": 6}


def name_of(file: Path) -> str:
    """The import name of a file of one of the floors."""
    folder, *rest = file.relative_to(ROOT).with_suffix("").parts
    parts = ["cupel", *([] if folder == "front" else [folder]), *rest]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(file): file for folder in FLOORS for file in sorted((ROOT / folder).rglob("*.py"))}


def imported_modules(source: str) -> list[str]:
    """Absolute names of everything that `source` imports, inside functions too, but not for annotations alone."""
    names: list[str] = []
    for node in _run(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those below `if TYPE_CHECKING:`, which never run."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from _run(child)


def all_imported(source: str) -> list[str]:
    """As `imported_modules`, with what is imported for annotations."""
    return imported_modules(source.replace("if TYPE_CHECKING:", "if True:"))


def floor_of(module: str) -> int:
    parts = module.split(".")
    return FLOORS.get(parts[1], FLOORS["front"]) if len(parts) > 1 else FLOORS["front"]


def generator_of(module: str) -> str | None:
    """The generator whose folder a module is in, below `mechanisms` or `generators`."""
    _, room, name, *_ = [*module.split("."), "", ""]
    return name if room in ("mechanisms", "generators") and name in CLAIMS else None


def violations(folder: str, file_name: str, source: str) -> list[str]:
    found = []
    for module in all_imported(source):
        if module.split(".")[0] != "cupel" or module == "cupel.__version__":
            continue
        if floor_of(module) > FLOORS[folder]:
            found.append(f"{folder}/{file_name} imports {module}, which is above it")
        own, other = generator_of(name_of(ROOT / folder / file_name)), generator_of(module)
        if own and other and own != other:
            found.append(f"{folder}/{file_name} imports {module}, a sibling")
    return found


def cycles(imports: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("folder", FLOORS)
def test_imports_go_down(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    found = [v for file in files for v in violations(folder, str(file.relative_to(ROOT / folder)), file.read_text())]
    assert not found, "\n".join(found)


def test_a_generator_is_named_in_its_own_folders_only() -> None:
    """Whatever else depends on the mechanism is a method of its claim or of its run."""
    of_old_ledgers = {"cupel.io.ledger_evidence"}  # the first releases did not note which rows were verified
    in_words = {"cupel.reports.claim"}  # which falls back on the name
    in_english = {"cupel.audits.games.replay.record_replay"}  # "declared" is a word, too
    for name, file in FILES.items():
        constants = (node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant))
        named = {value for value in constants if isinstance(value, str) and value in CLAIMS}
        if name not in {"cupel.generators.registry", *of_old_ledgers, *in_words, *in_english}:
            assert named <= {generator_of(name)}, name


def test_no_module_imports_itself_by_way_of_others() -> None:
    """A room's `__init__` imports nothing, so a module depends on the modules that it names, and on no others."""
    imports: dict[str, set[str]] = {}
    for name, file in FILES.items():
        found = imported_modules(file.read_text())
        imports[name] = {m if m in FILES else m.rpartition(".")[0] for m in found} & set(FILES) - {name}
    assert cycles(imports) == []


def test_the_checks_can_fail() -> None:
    assert violations("accounting", "x.py", "from cupel.mechanisms.data import records")
    assert violations("mechanisms", "aug_pe/x.py", "def f():\n    import cupel.mechanisms.private_inference.generator")
    assert violations("front", "generators/aug_pe/x.py", "import cupel.mechanisms.private_inference.generator")
    assert violations("front", "generators/aug_pe/x.py", "from cupel.generators.secret_evolution import run")
    assert not violations("front", "generators/aug_pe/x.py", "from cupel.generators.evolution import run")
    assert not violations("front", "audit_jobs/x.py", "from cupel.generators.secret_evolution import audits")
    assert violations("attacks", "x.py", "from cupel.jobs.assay import assay")
    assert not violations("attacks", "x.py", "from cupel.mechanisms.private_inference.loop import Loop")
    assert cycles({"a": {"b"}, "b": {"a"}})
    assert imported_modules("if TYPE_CHECKING:\n    import x") == []


def test_accounting_knows_neither_torch_nor_language_models() -> None:
    for file in (ROOT / "accounting").rglob("*.py"):
        roots = {module.split(".")[0] for module in all_imported(file.read_text())}
        assert not roots & {"torch", "transformers", "tokenizers", "safetensors"}, file


def test_every_folder_of_code_is_a_package_that_is_installed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert listed == sorted(listed)
    of_examples = {"cupel.published_claims.rows"}  # data that are installed
    assert set(listed) - of_examples == {name for name, file in FILES.items() if file.name == "__init__.py"}
    folders = {file.parent for file in FILES.values()}
    assert folders == {file.parent for file in FILES.values() if file.name == "__init__.py"}
