"""Runs a generator that is a Python function, in child processes.

A call may end its process, hang or print. The first two count as a failure, like any other outcome of a run, and what
is printed stays in the private folder. A child that has died is replaced.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import math
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dpassay.attacks.black_box.column_facts import Row
from dpassay.base.errors import InputError

Function: TypeAlias = Callable[[list[dict[str, Any]], int], Iterable[Any]]
"""A generator: (records, seed) → synthetic records, or texts."""

Output: TypeAlias = list[dict[str, Any]] | str
"""The rows of a run, or in words why there are none."""

_PLAIN = frozenset([str, int, float, bool, type(None)])
_START = 120.0  # seconds that a process may take to import the function


@functools.cache
def load(name: str) -> Function:
    """The function of ``module:function``; the current folder is searched, too.

    Raises:
        InputError: if there is none.
    """
    module, _, function = name.partition(":")
    if not module or not function:
        raise InputError(f"the function {name!r} must be given as module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        result = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError(f"the function {name!r} cannot be imported: {error}") from None
    if not callable(result):
        raise InputError(f"{name!r} is no function")
    loaded: Function = result
    return loaded


def called(function: Function, rows: Iterable[Row], seed: int) -> list[dict[str, Any]]:
    """The output of a function as rows with cells of Python's own types; a text is a row of the column ``text``.

    Raises:
        TypeError: if it returns something else than dicts and texts.
    """
    return [_record(row) for row in function(_own(rows), seed)]


def _own(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """A copy of records, which a function may change."""
    return [dict(row) if _PLAIN.issuperset(map(type, row.values())) else copy.deepcopy(dict(row)) for row in rows]


def _record(row: Any) -> dict[str, Any]:
    """A row of an output in types of Python."""
    if not isinstance(row, dict | str):
        raise TypeError(f"a generator returns records as dicts, or texts, not {type(row).__name__}")
    record = row if isinstance(row, dict) else {"text": row}
    if _PLAIN.issuperset(map(type, record.values())):
        return record
    return {name: _plain(cell) for name, cell in record.items()}


def _plain(cell: Any) -> Any:
    """A cell in a type of Python: those of NumPy and of pandas are converted."""
    if cell is None or isinstance(cell, str | int | float):
        return cell
    if isinstance(cell, np.generic):
        return cell.item()
    return None if str(cell) in ("<NA>", "NaT") else cell if isinstance(cell, list | dict) else str(cell)


class FunctionProcesses:
    """Calls functions in child processes, as many at a time as there are threads that call.

    Args:
        timeout: seconds after which a call is stopped.
        log: where calls print; each process has a file of its own in this folder.
    """

    def __init__(self, timeout: float, log: Path) -> None:
        self._timeout, self._log = timeout, log
        self._idle: queue.SimpleQueue[_Child] = queue.SimpleQueue()
        self._all: set[_Child] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def call(self, name: str, rows: Sequence[Row], seed: int, keep_log: Callable[[Path], None]) -> Output:
        """The output of one call, or why there is none.

        Args:
            name: ``module:function``.
            rows: that it reads.
            seed: of the call.
            keep_log: is given the file of what the call printed, if it failed.
        """
        child = self._child()
        if child is None:
            return "interrupted"
        output = child.call(name, rows, seed, self._timeout)
        if isinstance(output, str) and not self._stopped:
            keep_log(child.log)
        if child.ended:
            with self._lock:
                self._all.discard(child)
        else:
            self._idle.put(child)
        return output

    def _child(self) -> _Child | None:
        with contextlib.suppress(queue.Empty):
            return self._idle.get_nowait()
        with self._lock:
            if self._stopped:
                return None
            self._log.mkdir(mode=0o700, exist_ok=True, parents=True)
            child = _Child(self._log / f"function-{len(self._all)}-{os.urandom(4).hex()}.txt")
            self._all.add(child)
        return child

    def stop(self) -> None:
        """Ends all processes, and starts no more."""
        with self._lock:
            self._stopped = True
            for child in self._all:
                child.end()


class _Child:
    """A process that calls functions, one call after another."""

    def __init__(self, log: Path) -> None:
        self.log = log
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, str(log)), name="dpassay-function")
        self._process.start()
        theirs.close()
        self.ended = False

    def call(self, name: str, rows: Sequence[Row], seed: int, timeout: float) -> Output:
        try:
            if not self._pipe.poll(_START):
                self.end()
                return "its process did not start"
            self._pipe.recv()  # it is ready
            self._pipe.send((name, [dict(row) for row in rows], seed))
            if not self._pipe.poll(timeout if math.isfinite(timeout) else None):
                self.end()
                return f"it was stopped after {timeout:g} s"
            output: Output = self._pipe.recv()
        except (EOFError, OSError):
            self.end()
            return "it ended its process"
        return output

    def end(self) -> None:
        """Ends the process, and what it started in its group."""
        if self.ended:
            return
        self.ended = True
        assert self._process.pid is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):  # before it has a group of its own
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()


def _serve(pipe: multiprocessing.connection.Connection, log: str) -> None:
    """Calls functions as they are asked for, until the other end is closed."""
    os.setsid()  # so the parent alone handles interruptions; what is ignored here would be in what a function starts
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.dup2(nothing, 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    while True:
        try:
            pipe.send(None)
            name, rows, seed = pipe.recv()
        except (EOFError, OSError):
            return
        os.ftruncate(descriptor, 0)
        output: Output
        try:
            output = called(load(name), rows, seed)
        except BaseException as error:  # leaving is a failure like any other
            traceback.print_exc()
            output = f"{type(error).__name__}"
        with contextlib.suppress(Exception):
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        _answer(pipe, output)


def _answer(pipe: multiprocessing.connection.Connection, output: Output) -> None:
    try:
        pipe.send(output)
    except (EOFError, OSError):
        return
    except Exception as error:  # rows that cannot be sent to another process
        traceback.print_exc()
        pipe.send(f"{type(error).__name__}")


def source_of(name: str) -> Path | None:
    """The file of a function's module; None if it has none."""
    file = getattr(sys.modules.get(load(name).__module__), "__file__", None)
    return Path(file) if file is not None else None
