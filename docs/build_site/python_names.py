"""The reference of Python: every name that a folder exports, from the stubs that list them."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from build_site.pages import ROOT

MODULES = {
    "dpassay": "The main commands as functions; every error is a `DpassayError`.",
    "dpassay.accounting": "Upper bounds: guarantees, events, the ledger and accountants.",
    "dpassay.testing": "Assertions for the test suite of a mechanism.",
    "dpassay.audit": "The audits of functions, generators and data that other people made.",
    "dpassay.plots": "Results as matplotlib plots.",
    "dpassay.audits": "Lower bounds: games, statistics and verdicts.",
    "dpassay.attacks": "Adversaries, which give scores or guesses.",
    "dpassay.claims": "Claims as files and objects, and the registry of published claims.",
    "dpassay.data": "Records, tables and schemas.",
    "dpassay.mechanisms": "Generators, and the primitives they are built from.",
    "dpassay.utility": "Metrics of synthetic against real texts and tables.",
}
"""A page each, with what it holds."""


def pages() -> dict[str, str]:
    """The pages of the reference, by where they are on the site."""
    exported, written, result = exports(), dict[str, str](), {}
    for page, meaning in MODULES.items():
        inner = [name for name in exported if name == page or (page != "dpassay" and name.startswith(f"{page}."))]
        for module in inner:
            for name, origin in exported[module].items():
                written.setdefault(origin, f"{module}.{name}")
        sections = [f"# {page}\n\n{meaning}\n"]
        for module in inner:
            sections += [f"## {module}\n"] if module != page else []
            sections += list(_section(module, exported[module], written))
        result[f"reference/python/{page.removeprefix('dpassay.')}.md"] = "\n".join(sections)
    return result


def _section(module: str, names: dict[str, str], written: dict[str, str]) -> Iterator[str]:
    elsewhere = []
    for name, origin in names.items():
        if written[origin] == f"{module}.{name}":
            yield f"::: {module}.{name}\n"
        else:
            elsewhere.append(f"`{name}` ([`{written[origin]}`][{written[origin]}])")
    if elsewhere:
        yield f"Also here: {', '.join(elsewhere)}.\n"


def exports() -> dict[str, dict[str, str]]:
    """The modules that export names, and for each name where it is defined, such as ``dpassay.base.errors.InputError``.

    Modules that a stub exports are left out; they have stubs of their own.
    """
    found = {}
    for module, folder in _folders().items():
        stub = folder / "__init__.pyi"
        if stub.exists():
            found[module] = dict(_imported(ast.parse(stub.read_text(encoding="utf-8")), module))
    for file in ("audit", "plots"):
        body = ast.parse((ROOT / f"app/{file}.py").read_text(encoding="utf-8")).body
        named = next(item.value for item in body if isinstance(item, ast.Assign) and _is_all(item))
        found[f"dpassay.{file}"] = {name: f"dpassay.{file}.{name}" for name in ast.literal_eval(named)}
    return {module: names for module, names in found.items() if names}


def _is_all(item: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in item.targets)


def _imported(stub: ast.Module, module: str) -> Iterator[tuple[str, str]]:
    for item in stub.body:
        if isinstance(item, ast.ImportFrom) and item.module is not None:
            base = f"{module}.{item.module}" if item.level == 1 else item.module
            for name in item.names:
                yield name.asname or name.name, f"{base}.{name.name}"


def _folders() -> dict[str, Path]:
    """The folder of each package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    mapped: dict[str, str] = settings["package-dir"]
    result = {}
    for package in settings["packages"]:
        parent = max((name for name in mapped if package == name or package.startswith(f"{name}.")), key=len)
        result[package] = ROOT / mapped[parent] / package[len(parent) + 1 :].replace(".", "/")
    return result


def link_packages(folder: Path) -> None:
    """Makes a folder in which `dpassay` lies as it is imported, for tools that read packages without importing them."""
    target = folder / "dpassay"
    target.mkdir(parents=True)
    for package, path in _folders().items():
        if package == "dpassay":
            for item in path.iterdir():
                (target / item.name).symlink_to(item)
        elif package.count(".") == 1 and not (target / path.name).exists():
            (target / package.partition(".")[2]).symlink_to(path)
