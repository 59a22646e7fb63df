"""What it costs that every forward pass has a public shape: the price of padding, beside packed rows in the same run.

    python benchmarks/padding.py [--rounds 3]

For each data set: records in packed rows, whose shapes follow the data; in rows padded to the default length of a
context and of a document; and padded to lengths that a claim states (`public.context_tokens`, `document_tokens`).
Printed are the seconds that contexts and one token take, and the time of a document, contexts included, as a ratio to
packed rows. Verifying the shape happens once a run and is printed by itself. A GPU is used if there is one.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from random_models import random_model, random_records

from dpassay.data.records import Record, builtin_records
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.slot_inputs import SlotInputs, SlotRows

STEPS = 8


def now() -> float:
    """Wall time, once a GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = now()
    done = work()
    return now() - start, done


def measured(inputs: SlotInputs) -> tuple[float, float]:
    """Seconds that contexts take, and that one token of all slots takes."""
    groups = [[inputs.slot(slot) for slot in group] for group in inputs.groups(range(inputs.mechanism.total_slots))]
    contexts, rows = timed(lambda: [SlotRows(inputs, items) for items in groups])

    def steps() -> None:
        for _ in range(STEPS):
            for items, beside in zip(groups, rows, strict=True):
                beside.logits()
                beside.advance([1] * len(items), [False] * len(items))

    return contexts, timed(steps)[0] / STEPS


def compare(
    title: str,
    model: LanguageModel,
    records: Sequence[Record],
    ways: dict[str, dict[str, Any]],
    rounds: int,
    **own: Any,
) -> None:
    """A table of one data set; `ways` are changes of the mechanism, the packed one first."""
    base: dict[str, Any] = {
        "aggregate": "median",
        "clip": 10.0,
        "temperature": 1.2,
        "batch_size": 63,
        "records": len(records),
    }
    chosen = {name: PrivateInference(**(base | own | changes)) for name, changes in ways.items()}
    checks, inputs = {}, {}
    for name, mechanism in chosen.items():
        checks[name], _ = timed(functools.partial(mechanism.row_plan, model))
        inputs[name] = SlotInputs(mechanism, records, model, bytes(32))
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, pairs in results.items():
            pairs.append(measured(inputs[name]))
    tokens = own["tokens"]
    print(f"\n{title}; {len(records)} rows, a document of {tokens} tokens\n")
    print("| rows | context + document | verified in s | contexts, s | a token, s | ratio to packed |")
    print("| --- | --- | --- | --- | --- | --- |")
    wholes = {}
    for name, pairs in results.items():
        contexts, token = (statistics.median(side) for side in zip(*pairs, strict=True))
        wholes[name] = [context + tokens * step for context, step in pairs]
        ratios = [own / packed for own, packed in zip(wholes[name], wholes[next(iter(ways))], strict=True)]
        shapes = inputs[name].row_plan.shapes
        lengths = sorted({(shape.context, shape.positions - shape.context) for shape in (shapes or {}).values()})
        shown = ", ".join(f"{context} + {document}" for context, document in lengths) or "as they come"
        exact = f"{checks[name]:.2f}" if inputs[name].row_plan.exact else "–"
        print(f"| {name} | {shown} | {exact} | {contexts:.2f} | {token:.4f} | {statistics.median(ratios):.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    device = "cuda" if torch.cuda.is_available() else "cpu"
    packed = {"packed": {"rows": "packed"}, "padded, default lengths": {}}
    embedded = LanguageModel.load(device=device)
    stated: dict[str, dict[str, Any]] = {"padded, stated lengths": {"context_tokens": 24, "document_tokens": 12}}
    own: dict[str, Any] = {"prefix": "My 5-digit key is ", "tokens": 12}
    compare("Keys, the embedded model", embedded, builtin_records("keys", 1024, 0), packed | stated, rounds, **own)
    stated = {"padded, stated lengths": {"context_tokens": 48, "document_tokens": 64}}
    compare(
        "Notes, the embedded model", embedded, builtin_records("notes", 1024, 0), packed | stated, rounds, tokens=64
    )
    small = random_model("GPT-2 small", device)
    rows = 16 if device == "cpu" else 1024
    halves = [
        (random_records(rows // 2, length, small.vocabulary_size), label) for length, label in ((24, "a"), (60, "b"))
    ]
    records = [Record(f"{label}-{record.id}", record.text, label) for group, label in halves for record in group]
    stated = {
        "padded, one stated length": {"context_tokens": 64, "document_tokens": 64},
        "padded, a length stated for each label": {
            "context_tokens": (("a", 28), ("b", 64)),
            "document_tokens": 64,
        },
    }
    title = f"GPT-2 small (random weights) on {device}, half of the records of 24 tokens and half of 60"
    compare(title, small, records, packed | stated, rounds, tokens=64, labels=("a", "b"))


if __name__ == "__main__":
    main()
