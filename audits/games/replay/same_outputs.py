"""Whether two outputs of a mechanism are the same."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def outputs_equal(item: Any, other: Any) -> bool:
    """Whether two outputs are bitwise equal: arrays, containers, dataclasses, and objects that compare by ``==``."""
    if type(item) is not type(other):
        return False
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return all(
            outputs_equal(getattr(item, field.name), getattr(other, field.name)) for field in dataclasses.fields(item)
        )
    if isinstance(item, dict):
        return item.keys() == other.keys() and all(outputs_equal(value, other[key]) for key, value in item.items())
    if isinstance(item, list | tuple):
        return len(item) == len(other) and all(map(outputs_equal, item, other))
    if hasattr(item, "__array__"):  # also tensors and tables, whose == does not return a bool
        return _same_arrays(np.asarray(item), np.asarray(other))
    return bool(item == other) or (isinstance(item, float) and math.isnan(item) and math.isnan(other))


def _same_arrays(item: NDArray[Any], other: NDArray[Any]) -> bool:
    if item.dtype != other.dtype or item.shape != other.shape:
        return False
    return bool(np.array_equal(item, other, equal_nan=item.dtype.kind in "fc"))
