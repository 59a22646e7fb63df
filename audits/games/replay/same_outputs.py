"""Whether two outputs of a mechanism are the same."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def outputs_equal(one: Any, other: Any) -> bool:
    """Whether two outputs are bitwise equal: arrays, containers, dataclasses, and objects that compare by ``==``."""
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        return all(
            outputs_equal(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one)
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(outputs_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(outputs_equal, one, other))
    if hasattr(one, "__array__"):  # also tensors and tables, whose == does not return a bool
        return _same_arrays(np.asarray(one), np.asarray(other))
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def _same_arrays(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
