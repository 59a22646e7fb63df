"""What pieces of work need and is large, such as a model: each worker gets it once, and keeps it.

A piece names what it needs. The first pieces bring it along; a worker that has not got it by then says so, and is sent
the piece again with it. A worker keeps one thing of each kind, the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from dpassay.mechanisms.compute.executor import Executor, ThisProcess, exclusive, find, forget, kept
from dpassay.mechanisms.compute.workers import WorkerError, name_of_worker

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2  # pieces for each worker that are under way at a time


@dataclass(frozen=True, slots=True, eq=False)
class Need(Generic[T]):
    """Something that pieces of work need.

    Attributes:
        kind: what it is, in words such as ``embedder``.
        here: the one of this process.
        sent: called if there are workers, for a fingerprint, which is equal only for things that give the same results,
            and for how a worker gets its own. This can be pickled; what it raises says nothing about private data.
    """

    kind: str
    here: T
    sent: Callable[[], tuple[str, Callable[[], T]]]


@dataclass(frozen=True, slots=True)
class _Missing:
    """What a worker says that lacks something."""


def map_with(
    do: Executor,
    function: Callable[..., R],
    items: Iterable[T],
    *needs: Need[Any],
    near: Callable[[T], str] = lambda _: "",
) -> Iterator[R]:
    """`function(item, *needs)` for each item, in order; few items at a time are under way.

    Args:
        do: where it is done. A process does one such piece at a time.
        function: at the top level of a module; it is called with each item and with what is needed.
        items: can be pickled; they are taken a few ahead of the results.
        needs: what all pieces need.
        near: a name for each item. Items of the same name go to the same worker while it lives.
    """
    if isinstance(do, ThisProcess):
        for item in items:
            yield function(item, *(need.here for need in needs))
        return
    sent = {need.kind: need.sent() for need in needs}
    names = tuple((kind, fingerprint) for kind, (fingerprint, _) in sent.items())
    make = {kind: how for kind, (_, how) in sent.items()}

    def result(item: T, piece: Any) -> R:
        value = piece.result()
        if isinstance(value, _Missing):
            value = do.submit(_done, function, item, names, make, near=near(item)).result()
        return value  # type: ignore[no-any-return]

    ahead = _AHEAD * do.workers
    pending: deque[tuple[T, Any]] = deque()
    for number, item in enumerate(items):
        brought = make if number < ahead else {}
        pending.append((item, do.submit(_done, function, item, names, brought, near=near(item))))
        if len(pending) >= ahead:
            yield result(*pending.popleft())
    while pending:
        yield result(*pending.popleft())


def _done(
    function: Callable[..., R],
    item: Any,
    names: tuple[tuple[str, str], ...],
    make: Mapping[str, Callable[[], Any]],
) -> R | _Missing:
    """A piece on a worker."""
    with exclusive:
        if any(kind not in make and _known(kind, fingerprint) is None for kind, fingerprint in names):
            return _Missing()
        return function(item, *(_made(kind, fingerprint, make.get(kind)) for kind, fingerprint in names))


def _known(kind: str, fingerprint: str) -> tuple[str, Any] | None:
    """What this process keeps of a kind, if it is the one that is needed."""
    known: tuple[str, Any] | None = find(("need", kind))
    return known if known is not None and known[0] == fingerprint else None


def _made(kind: str, fingerprint: str, make: Callable[[], T] | None) -> T:
    """What a piece needs, made if it is not kept.

    Raises:
        WorkerError: one line, if it cannot be made.
    """
    known = _known(kind, fingerprint)
    if known is None:
        assert make is not None
        forget(("need", kind))  # before another one is in memory
        try:
            value = make()
        except WorkerError:
            raise
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise WorkerError(f"worker on {name_of_worker()}: has no such {kind}: {lines[0][:200]}") from None
        known = kept(("need", kind), lambda: (fingerprint, value))
    return known[1]


def as_it_is(value: T) -> Callable[[], T]:
    """How a worker gets a value that is sent to it."""
    return partial(_same, value)


def _same(value: T) -> T:
    return value
