"""Whether two outputs of a mechanism are the same."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def same(one: Any, other: Any) -> bool:
    """Whether two outputs are equal to the bit: arrays, containers, dataclasses, and what compares by ``==``."""
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "__array__"):  # tensors and tables too, whose == is no truth value
        return _same_arrays(np.asarray(one), np.asarray(other))
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def _same_arrays(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
