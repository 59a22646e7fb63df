"""The utility of synthetic texts and tables: metrics that compare them with real ones."""

from __future__ import annotations

import warnings
from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "Options":  # until version 0.4
        warnings.warn("cupel.utility.Options is UtilitySettings since cupel 0.3", DeprecationWarning, stacklevel=2)
        name = "UtilitySettings"
    return _load(name)
