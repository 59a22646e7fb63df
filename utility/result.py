"""What the results of all metrics share: their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from dpassay.data.text_overlap import Overlap

T = TypeVar("T")


@dataclass(frozen=True)
class Result:
    """Base class of results: frozen dataclasses whose attributes are the keys of their JSON, in the same order."""

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON types."""
        return {field.name: _to_json(getattr(self, field.name)) for field in fields(self)}


def _to_json(value: Any) -> Any:
    if isinstance(value, Result):
        return value.to_json()
    if isinstance(value, Overlap):
        return value.summary()
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, Mapping):  # of quantiles
        return {f"{probability:g}": quantile for probability, quantile in value.items()}
    return str(value) if isinstance(value, Path) else value


@dataclass(frozen=True)
class Sides(Result, Generic[T]):
    """One value of the synthetic texts and one of the real texts."""

    synthetic: T
    real: T
