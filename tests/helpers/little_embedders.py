"""Embedders of letters, some of which differ between processes, fail or die; workers import them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpassay.mechanisms.embedding.embedder import Vectors, unit_rows


class Letters:
    """How often each letter occurs."""

    name, dimension = "letters", 26

    @property
    def fingerprint(self) -> str:
        return type(self).__name__

    def embed(self, texts: Sequence[str]) -> Vectors:
        counts = [[text.count(chr(97 + letter)) for letter in range(26)] for text in texts]
        return unit_rows(np.array(counts, dtype=np.float64).reshape(len(texts), 26))


class OneBitOff(Letters):
    """The same on the machine that made it; elsewhere one vector has another last bit."""

    def __init__(self) -> None:
        self._made_in = os.getpid()

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = super().embed(texts)
        if os.getpid() != self._made_in and len(vectors):
            vectors[0, 0] = np.nextafter(vectors[0, 0], np.float32(2))
        return vectors


class Renamed(Letters):
    """Another model in every process."""

    @property
    def fingerprint(self) -> str:
        return str(os.getpid())


class Fails(Letters):
    """Fails on a text."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        if "secret words" in texts:
            raise OSError("the device is gone")
        return super().embed(texts)


class Dies(Letters):
    """Kills the first process that embeds a text."""

    def __init__(self, done: Path) -> None:
        self._done = done

    def embed(self, texts: Sequence[str]) -> Vectors:
        if "deadly words" in texts and not self._done.exists():
            self._done.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().embed(texts)
