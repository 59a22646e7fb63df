"""Pieces of work for tests of executors; workers import them."""

from __future__ import annotations

import os
import threading
import time

from dpassay.mechanisms.compute import executor
from dpassay.mechanisms.compute.workers import WorkerError


def square(number: int, plus: int = 0) -> int:
    return number * number + plus


def process_of(_: int) -> int:
    time.sleep(0.2)
    return os.getpid()


def waits(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def counted(name: str) -> tuple[int, int]:
    """The process, and how often it was asked under this name."""
    times = executor.kept(name, list)
    times.append(1)
    return os.getpid(), len(times)


def fails(_: int) -> None:
    raise WorkerError("worker: has another model")


def divides(number: int) -> float:
    return 1 / number


def with_need(number: int, need: tuple[int, int]) -> tuple[int, int, int]:
    """The process, that which made what was needed, and the number plus what was needed."""
    return os.getpid(), need[0], number + need[1]


def made(number: int) -> tuple[int, int]:
    """The process that made this, and a number."""
    return os.getpid(), number


def cannot_be_made() -> None:
    raise OSError("no such file\nat all")


def raises_unsendable(_: int) -> None:
    raise Unsendable(1, 2)


class Unsendable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("one line")
        self.lock = threading.Lock()
