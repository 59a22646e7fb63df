"""What a query spends at least: its own Fourier transforms and special functions, called again and nothing else."""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.fft
import scipy.special

Call = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]

_TRANSFORMS = ("rfft", "irfft")
_UFUNCS = ("exp", "expm1", "log", "log1p")
_SPECIAL = ("ndtr", "ndtri", "log_ndtr", "erfc", "erfcx", "log_ndtr")


@dataclass(frozen=True)
class Sizes:
    """Points of each transform back, floating-point operations and bytes of all transforms, elements of functions."""

    transforms: list[int]
    flops: float
    bytes: float
    evaluations: int


def recorded(work: Callable[[], Any]) -> list[Call]:
    """The transforms and special functions that a work calls on arrays, with copies of their arguments."""
    work()  # what is imported late should not be recorded
    calls: list[Call] = []
    with _spied(calls):
        work()
    return calls


def replay(calls: Sequence[Call]) -> None:
    """Nothing but the calls."""
    with np.errstate(all="ignore"):
        for _, function, arguments, options in calls:
            function(*arguments, **options)


def transforms(work: Callable[[], Any]) -> list[int]:
    """The points of every transform of a work, forth and back."""
    return [_points(call) for call in recorded(work) if call[0] in _TRANSFORMS]


def sizes_of(calls: Sequence[Call]) -> Sizes:
    points = [_points(call) for call in calls if call[0] in _TRANSFORMS]
    return Sizes(
        transforms=[_points(call) for call in calls if call[0] == "irfft"],
        flops=sum(2.5 * size * math.log2(max(size, 2)) for size in points),
        bytes=sum(16.0 * size for size in points),
        evaluations=sum(np.size(call[2][0]) for call in calls if call[0] not in _TRANSFORMS),
    )


def peak_mib() -> float:
    """The largest resident memory of this process so far.

    Linux counts what the parent held at the time of the fork into `ru_maxrss`, but not into VmHWM.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (2**20 if sys.platform == "darwin" else 1024)


def _points(call: Call) -> int:
    """Points on the side of the losses, over all rows."""
    name, _, arguments, options = call
    columns = int(np.shape(arguments[0])[-1])
    length = arguments[1] if len(arguments) > 1 else options.get("n")
    if length is None:
        length = 2 * (columns - 1) if name == "irfft" else columns
    return int(length) * (np.size(arguments[0]) // max(columns, 1))


@contextmanager
def _spied(calls: list[Call]) -> Iterator[None]:
    """Replaces the functions by ones that also take notes, wherever the accountant's modules find them."""

    def spy(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            if np.ndim(arguments[0]):
                copies = tuple(np.array(each) if isinstance(each, np.ndarray) else each for each in arguments)
                calls.append((name, function, copies, options))
            return function(*arguments, **options)

        return noted

    with ExitStack() as stack:
        special = {}
        for home, names in ((np, _UFUNCS), (scipy.fft, _TRANSFORMS), (scipy.special, _SPECIAL)):
            for name in names:
                function = getattr(home, name)
                special[id(function)] = spy(name, function)
                stack.enter_context(mock.patch.object(home, name, special[id(function)]))
        for module in [each for key, each in sys.modules.items() if key.startswith("dpassay.accounting")]:
            for name, value in list(vars(module).items()):
                if id(value) in special:
                    stack.enter_context(mock.patch.object(module, name, special[id(value)]))
        yield
