"""Progress of long work: a bar for people, JSON lines for programs, or nothing."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

from dpassay.base.terminal import escaped

Step = Callable[[int, int], None]
"""Called with the work done and the total work.

Both may depend on the private data, such as the number of records, so only the percentage is shown.
"""

Mode = Literal["bar", "json", "quiet"]
T = TypeVar("T")

_SILENT = 0.5  # seconds for which a terminal may show nothing
_shown = threading.Event()  # whether anything was shown since `waiting` began


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """Shows a line on a terminal if what is within takes longer than a moment and shows nothing itself."""
    if not sys.stderr.isatty():
        yield
        return

    def say() -> None:
        if not _shown.is_set():
            print(words, file=sys.stderr, flush=True)

    _shown.clear()
    timer = threading.Timer(_SILENT, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class Progress:
    """Reports stages of work to standard error, so that standard output holds results only."""

    def __init__(self, mode: Mode = "quiet") -> None:
        self.mode = mode
        self._noted: set[str] = set()

    def note(self, text: str) -> None:
        """Shows one line of information, unless it was shown before."""
        if text in self._noted:
            return
        self._noted.add(text)
        if self.mode == "json":
            self._emit({"note": text})
        elif self.mode == "bar":
            _shown.set()
            print(escaped(text), file=sys.stderr)

    @contextmanager
    def stage(self, title: str) -> Iterator[Step]:
        """A stage of work; yields the function to call as work gets done."""
        if self.mode == "bar":
            with _bar(title) as step:
                yield step
        elif self.mode == "json":
            yield self._json_step(title)
        else:
            yield lambda done, total: None

    def _json_step(self, title: str) -> Step:
        last, shown = 0.0, -1

        def step(done: int, total: int) -> None:
            nonlocal last, shown
            percent = _percent(done, total)
            if percent != shown and (percent == 100 or time.monotonic() - last >= 1):
                last, shown = time.monotonic(), percent
                self._emit({"stage": title, "percent": percent})

        return step

    @staticmethod
    def _emit(row: dict[str, object]) -> None:
        print(json.dumps(row), file=sys.stderr, flush=True)


def of_part(step: Step | None, before: int, total: int) -> Step | None:
    """The step of a part of some work, before which so much of the total was done."""
    return None if step is None else lambda done, _: step(before + done, total)


def joint_steps(step: Step | None, *totals: int) -> list[Step]:
    """A step for each of several kinds of work that are done by turns: `step` is called with the sums of all.

    Args:
        step: of all work; None for none.
        totals: how much each is expected to be; a later call corrects it.
    """
    done, expected = [0] * len(totals), list(totals)

    def part(kind: int) -> Step:
        def called(now: int, total: int) -> None:
            done[kind], expected[kind] = now, total
            if step is not None:
                step(sum(done), sum(expected))

        return called

    return [part(kind) for kind in range(len(totals))]


def with_progress(items: Iterable[T], step: Step, total: int, *, begin: int = 0, every: int = 1) -> Iterator[T]:
    """The items; after each `every` of them, and after the last, `step` is called with the items done, those that were
    done before (`begin`) included, and the total."""
    for done, item in enumerate(items, begin + 1):
        yield item
        if done % every == 0 or done == total:
            step(done, total)


def _percent(done: int, total: int) -> int:
    return 100 if done >= total else max(0, 100 * done // total)


@contextmanager
def _bar(title: str) -> Iterator[Step]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
        progress.TimeElapsedColumn(),
    )
    bar = progress.Progress(*columns, console=Console(stderr=True))
    task = bar.add_task(title, total=100)

    def start() -> None:
        _shown.set()
        bar.start()

    def step(done: int, total: int) -> None:
        if done > 0:  # so that an error before any work shows no bar
            start()
        bar.update(task, completed=_percent(done, total))

    late = threading.Timer(_SILENT, start)  # the first piece of work may take long
    late.daemon = True
    if sys.stderr.isatty():
        late.start()
    try:
        yield step
    finally:
        late.cancel()
        if late.ident is not None:
            late.join()
        if bar.live.is_started:  # stopping a bar that never started prints an empty line
            bar.stop()
