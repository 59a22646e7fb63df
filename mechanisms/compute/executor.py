"""Where the work of a run is done: in this process, in processes of this machine, or on the workers of a cluster.

The process that began a run is its coordinator: it owns the ledger, the plan and the keys. A piece of work is a
function of its arguments. It returns one message, of which nothing is used before the coordinator committed it, so that
a piece whose worker died is done again, and charged once.

A worker needs large things more than once, such as a model. It keeps them in its own memory (`kept`), and a piece names
what it needs by something small that can be sent.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_AHEAD = 2  # pieces for each worker that are under way at a time in `map`


class Pending(Protocol[R_co]):
    """A piece of work that was begun."""

    def result(self) -> R_co:
        """What it returned, once it has; or raises what it raised."""


class Executor(ABC):
    """Does pieces of work. It is closed at the end of a `with` block."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many pieces are done at a time, each in a process of its own."""

    @abstractmethod
    def submit(self, function: Callable[..., R], *arguments: Any, near: str = "") -> Pending[R]:
        """Begins a piece of work.

        Args:
            function: at the top level of a module. It may be called more than once, if a worker dies.
            arguments: of the function; they can be pickled.
            near: a name. Pieces of the same name go to the same worker while it lives, since it keeps what they need;
                mostly, since one without work may take them. The address of a worker names this worker.
        """

    @abstractmethod
    def first(self, pieces: Collection[Pending[R]]) -> Pending[R]:
        """Waits until one of these pieces, which were begun here, is done or failed, and returns it."""

    def map(self, function: Callable[..., R], items: Iterable[Any], *shared: Any) -> Iterator[R]:
        """`function(item, *shared)` for each item, in order. Few items at a time are taken ahead of the results."""
        pending: deque[Pending[R]] = deque()
        for item in items:
            pending.append(self.submit(function, item, *shared))
            if len(pending) >= _AHEAD * self.workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def close(self) -> None:  # noqa: B027 - nothing to end is the default
        """Ends what is under way, and the workers that this executor started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True, eq=False)
class _Call(Generic[R]):
    """A piece that is done when its result is asked for."""

    function: Callable[..., R]
    arguments: tuple[Any, ...]

    def result(self) -> R:
        return self.function(*self.arguments)


class ThisProcess(Executor):
    """Does each piece in this process, when its result is asked for."""

    @property
    def workers(self) -> int:
        return 1

    def submit(self, function: Callable[..., R], *arguments: Any, near: str = "") -> Pending[R]:
        return _Call(function, arguments)

    def first(self, pieces: Collection[Pending[R]]) -> Pending[R]:
        return next(iter(pieces))

    def map(self, function: Callable[..., R], items: Iterable[Any], *shared: Any) -> Iterator[R]:
        for item in items:
            yield function(item, *shared)


THIS_PROCESS = ThisProcess()


_STALE = 600.0  # seconds for which something is kept that nothing used

_kept: dict[Hashable, tuple[Any, float]] = {}
_lock = threading.RLock()

exclusive = _lock
"""A context in which no other piece of this process keeps or computes: for work with a model, whose settings are its
own."""


def kept(key: Hashable, make: Callable[[], T]) -> T:
    """What this process keeps under a key; made if it is not kept."""
    with _lock:
        known = _kept.get(key)
        value = make() if known is None else known[0]
        _kept[key] = (value, time.monotonic())
        return value


def keep(key: Hashable, value: Any) -> None:
    """Keeps a value in this process until it is forgotten, or for ten minutes after its last use if other things are
    kept."""
    with _lock:
        now = time.monotonic()
        for other in [other for other, (_, used) in _kept.items() if now - used > _STALE]:
            del _kept[other]
        _kept[key] = (value, now)


def find(key: Hashable) -> Any:
    """What is kept under a key; None if nothing is."""
    with _lock:
        known = _kept.get(key)
        if known is not None:
            _kept[key] = (known[0], time.monotonic())
        return None if known is None else known[0]


def forget(*keys: Hashable) -> None:
    """Keeps nothing under these keys."""
    with _lock:
        for key in keys:
            _kept.pop(key, None)
