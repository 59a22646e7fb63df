"""The reference of Python has every name that a folder exports."""

from __future__ import annotations

import importlib
import re
import types

import pytest
from build_site import python_names

EXPORTS = python_names.exports()


@pytest.mark.parametrize("module", EXPORTS)
def test_names_are_those_that_the_module_exports(module: str) -> None:
    """By importing it, which the reference does not."""
    imported = importlib.import_module(module)
    named = {name for name in imported.__all__ if not name.startswith("__")}
    values = {name for name in named if not isinstance(getattr(imported, name), types.ModuleType)}
    assert set(EXPORTS[module]) == values


def test_every_name_is_on_a_page_once() -> None:
    pages = "\n".join(python_names.pages().values())
    described = re.findall(r"^::: (\S+)$", pages, re.M)
    assert len(described) == len(set(described)) > 200
    elsewhere = set(re.findall(r"\]\[(\S+)\]", pages))
    assert elsewhere <= set(described)
    origins = {origin for names in EXPORTS.values() for origin in names.values()}
    assert len(described) == len(origins)
