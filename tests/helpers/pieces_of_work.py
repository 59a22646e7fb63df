"""Pieces of work for tests of executors; workers import them."""

from __future__ import annotations

import os
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
