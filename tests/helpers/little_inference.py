"""A little run of private inference: twelve records, six tokens, noise that is recorded."""

from __future__ import annotations

from typing import Any

from dpassay.accounting.ledger.run import Run
from dpassay.data.records import Record
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.transcripts import Generation

KEY = bytes(32)
TEXTS = [str(i).translate(str.maketrans("0456789", "1123123")) for i in range(100, 112)]
RECORDS = [Record(f"id-{i}", text, "ab"[i % 2], f"user-{i // 2}") for i, text in enumerate(TEXTS)]


def mechanism(**changes: Any) -> PrivateInference:
    base: dict[str, Any] = {
        "aggregate": "median",
        "clip": 6.0,
        "temperature": 1.5,
        "batch_size": 3,
        "tokens": 6,
        "records": 12,
        "labels": ("a", "b"),
    }
    return PrivateInference(**(base | changes))


class Watcher:
    """Keeps what observers are shown."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def step(self, **seen: Any) -> None:
        self.steps.append(seen)


def write(mechanism: PrivateInference, model: Any, run: Run, seed: int = 1, **options: Any) -> Generation:
    return generate(mechanism, RECORDS, model, run, key=KEY, source=Recorded(seed), rows_at_once=5, **options)


def killed_at(stop_at: int) -> Any:
    """A `Run.step` that is interrupted at its n-th call: before it where n is odd, after it where n is even."""
    steps, original = {"count": 0}, Run.step

    def dies(self: Run, **parts: Any) -> None:
        steps["count"] += 1
        if steps["count"] == stop_at and stop_at % 2:
            raise KeyboardInterrupt
        original(self, **parts)
        if steps["count"] == stop_at:
            raise KeyboardInterrupt

    return dies
