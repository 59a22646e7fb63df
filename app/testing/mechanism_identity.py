"""What identifies a mechanism: its name, the file that defines it, its arguments and its state."""

from __future__ import annotations

import functools
import hashlib
import inspect
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def settings(
    mechanism: Callable[..., Any], pairs: Sequence[tuple[Any, Any]], score: Callable[[Any], float] | None
) -> dict[str, Any]:
    """What the outputs depend on, as hashes: the data, and the code and arguments of both functions."""
    results: dict[str, Any] = {"pairs": hashlib.sha256(pickle.dumps(tuple(pairs))).hexdigest()}
    for name, function in (("mechanism", mechanism), ("score", score)):
        if function is not None:
            results[name] = [name_of(function), _source(function), _arguments(function)]
    return results


def _arguments(function: Any) -> list[str]:
    """Hashes of the arguments of a partial, the state of an object, the values in a closure."""
    if isinstance(function, functools.partial):
        values = [*function.args, *sorted(function.keywords.items())]
        return [*_arguments(function.func), *map(_hash, values)]
    if not inspect.isfunction(function):
        return [_hash(function)]
    values = [cell.cell_contents for cell in function.__closure__ or ()]
    return [_hash(value) for value in (function.__code__.co_firstlineno, function.__defaults__, *values)]


def _hash(value: Any) -> str:
    try:
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:  # a nested function, a module
        return type(value).__qualname__


def _source(function: Any) -> str:
    """The hash of the file that defines a function; empty if there is none."""
    try:
        file = inspect.getsourcefile(_unwrapped(function))
    except TypeError:  # a builtin
        return ""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file and Path(file).is_file() else ""


def _unwrapped(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function)


def name_of(function: Any) -> str:
    """The name of a function, of the function that a partial calls, or of an object's class."""
    return str(getattr(_unwrapped(function), "__qualname__", function))
