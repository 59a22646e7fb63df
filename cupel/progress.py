"""How long work shows itself: a bar for people, JSON lines for programs, or nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from cupel.terminal import escaped

Step = Callable[[int, int], None]
"""Called with the work done and the work in all."""

Mode = Literal["bar", "json", "quiet"]


class Progress:
    """Reports stages of work to standard error, so that standard output holds results only."""

    def __init__(self, mode: Mode = "quiet") -> None:
        self.mode = mode

    def note(self, text: str) -> None:
        """One line of information."""
        if self.mode == "json":
            self._emit({"note": text})
        elif self.mode == "bar":
            print(escaped(text), file=sys.stderr)

    @contextmanager
    def stage(self, title: str) -> Iterator[Step]:
        """A stage with a rate and an estimate of the time left; yields the function to call as work gets done."""
        if self.mode == "bar":
            with _bar(title) as step:
                yield step
        elif self.mode == "json":
            yield self._json_step(title)
        else:
            yield lambda done, total: None

    def _json_step(self, title: str) -> Step:
        last = 0.0

        def step(done: int, total: int) -> None:
            nonlocal last
            if done >= total or time.monotonic() - last >= 1:
                last = time.monotonic()
                self._emit({"stage": title, "done": done, "total": total})

        return step

    @staticmethod
    def _emit(row: dict[str, object]) -> None:
        print(json.dumps(row), file=sys.stderr, flush=True)


@contextmanager
def _bar(title: str) -> Iterator[Step]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
        progress.TimeElapsedColumn(),
    )
    bar = progress.Progress(*columns, console=Console(stderr=True))
    task = bar.add_task(title, total=None, rate="")

    def step(done: int, total: int) -> None:
        bar.start()  # at the first step, so that an error before any work is all that a person sees
        speed = bar.tasks[task].speed
        bar.update(task, completed=done, total=total, rate=f"{speed:.1f}/s" if speed else "")

    try:
        yield step
    finally:
        if bar.live.is_started:  # to stop what never began prints an empty line
            bar.stop()
