"""Imports go down the floors, never up, never sideways between generators or audits, and never in a cycle."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from dpassay.generators.registry import CLAIMS

ROOT = Path(__file__).resolve().parents[1]
FLOORS = (
    "base",
    "accounting",
    "data",
    "mechanisms",
    "attacks",
    "audits",
    "utility",
    "claims",
    "reports",
    "auditing",
    "generators",
    "app",
)
"""The folders of packages, lowest first; `app` is `dpassay` itself."""

AUDITS = ("canaries", "many_runs", "membership", "released", "secrets")
"""The rooms of `auditing`, which do not know each other."""


def name_of(file: Path) -> str:
    """The import name of a file of one of the floors."""
    folder, *rest = file.relative_to(ROOT).with_suffix("").parts
    parts = ["dpassay", *([] if folder == "app" else [folder]), *rest]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(file): file for folder in FLOORS for file in sorted((ROOT / folder).rglob("*.py"))}


def imported_modules(source: str) -> list[str]:
    """Absolute names of everything that `source` imports, inside functions and for annotations alone, too."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def floor_of(module: str) -> int:
    """The floor of a module, counted from below."""
    parts = module.split(".")
    return FLOORS.index(parts[1]) if len(parts) > 1 and parts[1] in FLOORS else FLOORS.index("app")


def room_of(module: str) -> tuple[str, str] | None:
    """The folder of a generator in `mechanisms` or `generators`, or of an audit in `auditing`, that a module is in."""
    _, floor, name, *_ = [*module.split("."), "", ""]
    rooms = AUDITS if floor == "auditing" else tuple(CLAIMS) if floor in ("mechanisms", "generators") else ()
    return ("audit" if floor == "auditing" else "generator", name) if name in rooms else None


def violations(file: Path, source: str) -> list[str]:
    """What a file with this source imports and must not."""
    own, results = name_of(file), []
    for module in imported_modules(source):
        if module.split(".")[0] != "dpassay" or module == "dpassay.__version__":
            continue
        if floor_of(module) > floor_of(own):
            results.append(f"{own} imports {module}, which is above it")
        room, other = room_of(own), room_of(module)
        if floor_of(module) == floor_of(own) and other and room != other and own != "dpassay.generators.registry":
            results.append(f"{own} imports {module}, a sibling, or a room of its own floor that is not shared")
        elif room and other and room[0] == other[0] and room != other:
            results.append(f"{own} imports {module}, a sibling")
    return results


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
    results = [violation for file in files for violation in violations(file, file.read_text())]
    assert not results, "\n".join(results)


def test_a_generator_is_named_in_its_own_folders_only() -> None:
    """Whatever else depends on the mechanism is a method of its claim or of its run."""
    of_old_ledgers = {"dpassay.accounting.ledger.evidence"}  # the first releases did not note which rows were verified
    in_english = {"dpassay.audits.games.replay.record_replay"}  # "declared" is a word, too
    for name, file in FILES.items():
        constants = (node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant))
        named = {value for value in constants if isinstance(value, str) and value in CLAIMS}
        if name not in {"dpassay.generators.registry", *of_old_ledgers, *in_english}:
            room = room_of(name)
            assert named <= ({room[1]} if room else set()), name


def test_no_module_imports_itself_by_way_of_others() -> None:
    """A room's `__init__` imports nothing, so a module depends on the modules that it names, and on no others."""
    imports: dict[str, set[str]] = {}
    for name, file in FILES.items():
        result = imported_modules(file.read_text())
        imports[name] = {m if m in FILES else m.rpartition(".")[0] for m in result} & set(FILES) - {name, "dpassay"}
    assert cycles(imports) == []


@pytest.mark.parametrize(
    ("file", "source", "allowed"),
    [
        ("base/x.py", "from dpassay.accounting import events", False),
        ("accounting/x.py", "from dpassay.data import records", False),
        ("data/x.py", "from dpassay.base.errors import InputError", True),
        ("mechanisms/aug_pe/x.py", "def f():\n    import dpassay.mechanisms.private_inference.generator", False),
        ("mechanisms/evolution/x.py", "from dpassay.mechanisms.secret_evolution import clustering", False),
        ("attacks/x.py", "if TYPE_CHECKING:\n    from dpassay.jobs.assay import assay", False),
        ("attacks/x.py", "from dpassay.mechanisms.private_inference.loop import Loop", True),
        ("auditing/secrets/x.py", "from dpassay.generators.secret_evolution import audits", False),
        ("auditing/secrets/x.py", "from dpassay.auditing.canaries import plan", False),
        ("generators/aug_pe/x.py", "import dpassay.mechanisms.private_inference.generator", False),
        ("generators/aug_pe/x.py", "from dpassay.generators.secret_evolution import run", False),
        ("generators/base.py", "from dpassay.generators.secret_evolution import run", False),
        ("generators/aug_pe/x.py", "from dpassay.generators.evolution import run", True),
        ("generators/two_stage/x.py", "from dpassay.auditing.released import run", True),
        ("app/jobs/x.py", "from dpassay.generators.secret_evolution import audits", True),
    ],
)
def test_what_may_be_imported(file: str, source: str, allowed: bool) -> None:
    assert (not violations(ROOT / file, source)) is allowed


def test_a_class_name_stands_for_one_thing() -> None:
    files = defaultdict[str, list[str]](list)
    for name, file in FILES.items():
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                files[node.name].append(name)
    assert {name: modules for name, modules in files.items() if len(modules) > 1} == {}


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"a"}})
    assert imported_modules("if TYPE_CHECKING:\n    import x") == ["x"]


def test_accounting_knows_neither_torch_nor_language_models() -> None:
    for file in (ROOT / "accounting").rglob("*.py"):
        roots = {module.split(".")[0] for module in imported_modules(file.read_text())}
        assert not roots & {"torch", "transformers", "tokenizers", "safetensors"}, file


def test_every_folder_of_code_is_a_package_that_is_installed() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    listed = setuptools["packages"]
    assert listed == sorted(listed)
    of_examples = {"dpassay.claims.published.rows"}  # data that are installed
    assert set(listed) - of_examples == {name for name, file in FILES.items() if file.name == "__init__.py"}
    folders = {file.parent for file in FILES.values()}
    assert folders == {file.parent for file in FILES.values() if file.name == "__init__.py"}
    assert set(setuptools["package-dir"].values()) == {*FLOORS, "examples/claims/published"}
