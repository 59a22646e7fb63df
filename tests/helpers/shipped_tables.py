"""Tables that ship with other packages, as their authors wrote them: real separators, marks, dates and headers."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

PACKAGES = {
    "statsmodels": "datasets",
    "sklearn": "datasets/data",
    "vega_datasets": "_data",
    "palmerpenguins": "data",
}
"""Packages, and the folder of their tables. They are not imported."""
ENDINGS = (".csv", ".tsv", ".csv.gz")


def folder_of(package: str) -> Path | None:
    """The folder of a package on this machine; None if it is not installed."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def shipped_tables() -> dict[str, Path]:
    """All tables of the packages that are installed, by package and path in it, such as ``sklearn/iris.csv``."""
    tables = {}
    for package, under in PACKAGES.items():
        folder = folder_of(package)
        if folder is not None:
            for path in sorted((folder / under).rglob("*")):
                if path.name.endswith(ENDINGS):
                    tables[f"{package}/{path.relative_to(folder / under)}"] = path
    return tables


def write_thirds(table: Path, folder: Path) -> tuple[Path, Path, Path]:
    """Three files in a folder, each with the first line of a table and every third of its other lines, byte for byte.

    They are the source, the holdout and the synthetic file of an audit.
    """
    opened: Callable[..., gzip.GzipFile] = gzip.open if table.suffix == ".gz" else open  # type: ignore[assignment]
    with opened(table, "rb") as file:
        first, *lines = file.read().splitlines(keepends=True)
    ending = "".join(table.suffixes[-2:]) if table.suffix == ".gz" else table.suffix
    paths = []
    for number, name in enumerate(("source", "holdout", "synthetic")):
        path = folder / f"{name}{ending}"
        with opened(path, "wb") as file:
            file.write(first + b"".join(lines[number::3]))
        paths.append(path)
    return paths[0], paths[1], paths[2]
