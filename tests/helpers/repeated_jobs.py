"""Jobs that worker processes can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np


def draw(index: int, seed: np.random.SeedSequence) -> Any:
    """Numbers of this repetition alone."""
    return {"index": index, "normal": np.random.default_rng(seed).normal(size=2).tolist()}


def draw_and_note(folder: str, index: int, seed: np.random.SeedSequence) -> Any:
    """The same, with a file for every time that it ran."""
    with open(Path(folder) / f"ran-{index}", "a") as file:
        file.write("x")
    return draw(index, seed)


def slow_draw(index: int, seed: np.random.SeedSequence) -> Any:
    """The same, in a twentieth of a second."""
    time.sleep(0.05)
    return draw(index, seed)


def sleep_but_at_first(index: int, seed: np.random.SeedSequence) -> Any:
    """Two minutes from the second repetition on."""
    time.sleep(120 if index else 0)
    return index


def fail_at_three(index: int, seed: np.random.SeedSequence) -> Any:
    """Raises in repetition 3."""
    if index == 3:
        raise KeyError("no such thing")
    return index


class Stubborn(Exception):
    """Cannot be sent to another process."""

    def __init__(self, item: str, other: str) -> None:
        super().__init__(f"{item} and {other}")


def raise_stubborn(index: int, seed: np.random.SeedSequence) -> Any:
    """Raises what cannot be sent."""
    raise Stubborn("this", "that")


def die_at_three(index: int, seed: np.random.SeedSequence) -> Any:
    """Kills its process in repetition 3."""
    if index == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return index


def die_at_three_once(died: str, index: int, seed: np.random.SeedSequence) -> Any:
    """The same, but only the first time."""
    if index == 3 and not Path(died).exists():
        Path(died).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return index


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def threads(index: int, seed: np.random.SeedSequence) -> Any:
    """What this process was told about threads."""
    return [os.environ.get(name) for name in THREADS]
