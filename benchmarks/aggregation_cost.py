"""What aggregation and accounting cost beside the model's forward pass, per token of one slot.

    python benchmarks/aggregation_cost.py [--quick]

Three settings: a batch of 64 contexts of a GPT-2-small-shaped model (random weights, vocabulary of 50257) on the CPU;
the embedded model with 65 slots of 63 contexts; and made-up logits of 255 contexts over a vocabulary of 256000, on a
GPU if there is one. Printed for each: the time of one decode step (not for made-up logits), of aggregating, drawing and
accounting, of the ledger's transaction, and the limit: reading the logits once at the memory bandwidth that is measured
in the same run. A GPU's times end when it has done what it was given.

How much is left to sort depends on the logits, so the large vocabulary is measured with rows that agree up to noise, as
those of similar contexts do, with independent rows, and with rows that are nowhere at the bottom of the clip.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ledger.entries import Charge, Commit, Json
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.records import builtin_records
from dpassay.mechanisms.models.decoding import DecodeSession, PackedRows
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY
from dpassay.mechanisms.private_inference import aggregation
from dpassay.mechanisms.private_inference.generator import PrivateInference


def now() -> float:
    """Wall time, once a GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The median time of one call, after one that warms up."""
    work()
    times = []
    for _ in range(repeats):
        start = now()
        work()
        times.append(now() - start)
    return float(np.median(times))


def read_bandwidth(device: str) -> float:
    """Bytes a second that a device (one thread of a processor) reads from memory: a sum over 512 MiB."""
    block = torch.ones(2**27, device=device) if device == "cuda" else np.ones(2**27, dtype=np.float32)
    return 4 * 2**27 / seconds(block.sum, 5)


@dataclass(frozen=True)
class Measured:
    """Seconds of one token of one slot."""

    forward: float | None
    parts: dict[str, float]
    ledger: float

    def aggregation(self, kind: str) -> float:
        """Of a mean or a median, with its costs and the ledger."""
        return sum(taken for part, taken in self.parts.items() if part.startswith(kind)) + self.ledger


def aggregation_parts(logits: torch.Tensor, clip: float, temperature: float, repeats: int) -> dict[str, float]:
    """Seconds of each part of one token's aggregation; `logits` has shape (B, V), on the device of the model."""
    size = len(logits)
    laws: dict[str, Callable[[], aggregation.Aggregate]] = {
        "median": lambda: aggregation.median(
            logits, None, clip=clip, temperature=temperature, adjacency=Adjacency.ADD_REMOVE
        ),
        "mean": lambda: aggregation.mean(logits, None, clip=clip, temperature=temperature, denominator=size),
    }
    times: dict[str, list[float]] = {}
    for _ in range(repeats + 1):
        for kind, aggregate in laws.items():
            marks = [now()]
            law = aggregate()
            marks.append(now())
            token = law.draw(OS_ENTROPY)
            marks.append(now())
            if law.medians is not None:
                aggregation.median_cost(law, token, replaced=False, rounding=1e-12)
                marks.append(now())
            for part, taken in zip(("aggregate", "draw", "costs"), np.diff(marks).tolist(), strict=False):
                times.setdefault(f"{kind}: {part}", []).append(taken)
    return {part: float(np.median(taken[1:])) for part, taken in times.items()}


def ledger_step(mechanism: PrivateInference, repeats: int) -> float:
    """Seconds of one transaction, which commits one token of every slot and charges the next."""
    mechanism = dataclasses.replace(mechanism, tokens=repeats + 2)  # as many as are charged here
    slots = tuple(f"slot-{slot}" for slot in range(mechanism.total_slots))
    costs = [0.123456789, 0.123456789, 0.123456789]
    event = mechanism.token_event()

    def charge(step: int) -> Charge:
        return Charge(key=f"tokens/{step}", stage="tokens", event=event, partition="slots", parts=slots)

    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger.open(Path(folder) / "ledger.sqlite") as ledger,
    ):
        run = ledger.begin("run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={})
        run.step(charge=charge(0))
        steps = iter(range(10**6))

        def work() -> None:
            step = next(steps)
            value: dict[str, Json] = {"tokens": [1] * len(slots), "costs": [costs] * len(slots)}
            commit = Commit(key=f"tokens/{step}", value=value, realised=dict.fromkeys(slots, costs))
            run.step(commit=commit, charge=charge(step + 1))

        return seconds(work, repeats)


def decode_step(session: DecodeSession, repeats: int) -> tuple[float, torch.Tensor]:
    """Seconds of one forward of all rows, and its logits."""

    def work() -> None:
        session.logits()
        session.append([5] * session.rows)

    taken = seconds(work, repeats)
    return taken, session.logits()


def large_model(batch: int, repeats: int) -> Measured:
    """GPT-2 small's shape, random weights, contexts of 64 tokens, one slot."""
    config = transformers.GPT2Config()
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    network = network.to_empty(device="cpu").eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(0, 0.02)
    contexts = torch.randint(0, config.vocab_size, (batch, 64)).tolist()
    session = PackedRows(network, contexts, vocabulary_size=config.vocab_size, rows_per_forward=batch)
    forward, logits = decode_step(session, repeats)
    mechanism = PrivateInference(
        aggregate="median", clip=6.0, temperature=1.5, batch_size=batch, tokens=1, records=batch
    )
    # Random weights give nearly flat logits; spread them to the range of a trained model's.
    spread = logits * (8 / logits.std())
    return Measured(forward, aggregation_parts(spread, 6.0, 1.5, repeats), ledger_step(mechanism, repeats))


def embedded_model(repeats: int) -> tuple[Measured, int]:
    """The embedded model, 4096 keys in 65 slots; times are a slot's share, the forward is of all slots together."""
    model = LanguageModel.load(device="cpu")
    records = builtin_records("keys", 4096, 0)
    mechanism = PrivateInference(
        aggregate="median", clip=10.0, temperature=1.2, batch_size=63, tokens=1, records=4096, labels=("key",)
    )
    batches = mechanism.batches(records, bytes(32))
    prompt = mechanism.prompt(model, "key")
    share = prompt.record_tokens
    contexts: Sequence[list[int]] = [prompt.context([record.text], share) for record in records]
    forward, logits = decode_step(model.packed_rows(contexts), repeats)
    size = int(np.median(batches.sizes))
    parts = aggregation_parts(logits[:size], 10.0, 1.2, 20 * repeats)
    slots = mechanism.total_slots
    return Measured(forward / slots, parts, ledger_step(mechanism, repeats) / slots), size


def large_vocabulary(kind: str, device: str, repeats: int) -> Measured:
    """Logits of 255 rows over 256000 tokens that no model made."""
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(255, 256_000, generator=generator, device=device)
    if kind == "rows that agree":
        logits = 8 * torch.randn(256_000, generator=generator, device=device) + 0.8 * logits
    elif kind == "independent rows":
        logits *= 8
    mechanism = PrivateInference(aggregate="median", clip=6.0, temperature=1.5, batch_size=255, tokens=1, records=255)
    return Measured(None, aggregation_parts(logits, 6.0, 1.5, repeats), ledger_step(mechanism, repeats))


def show(title: str, measured: Measured, batch: int, vocabulary: int, bandwidth: float) -> None:
    limit = batch * vocabulary * 4 / bandwidth
    print(f"{title}: B = {batch}, V = {vocabulary}, milliseconds a token and slot")
    if measured.forward is not None:
        print(f"  forward pass              {1e3 * measured.forward:9.3f}   ({torch.get_num_threads()} threads)")
    for name, value in (*measured.parts.items(), ("ledger transaction", measured.ledger)):
        print(f"  {name:25s} {1e3 * value:9.3f}")
    print(f"  limit                     {1e3 * limit:9.3f}   {batch * vocabulary * 4 / 1e6:.1f} MB of logits once")
    for kind in ("median", "mean"):
        whole = measured.aggregation(kind)
        share = "" if measured.forward is None else f", {100 * whole / (whole + measured.forward):.1f} % of a step"
        print(f"  {kind + ', all of it':25s} {1e3 * whole:9.3f}   {whole / limit:.1f} times the limit{share}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few repeats")
    repeats = 3 if parser.parse_args().quick else 15
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"torch {torch.__version__}, numpy {np.__version__}, {os.cpu_count()} cores")
    bandwidth = read_bandwidth("cpu")
    print(f"one thread of the processor reads {bandwidth / 1e9:.1f} GB/s")
    show("GPT-2-small shape", large_model(64, repeats), 64, 50257, bandwidth)
    measured, size = embedded_model(repeats)
    show("embedded model, 65 slots", measured, size, 1024, bandwidth)
    if device == "cuda":
        bandwidth = read_bandwidth(device)
        print(f"{torch.cuda.get_device_name()} reads {bandwidth / 1e9:.1f} GB/s")
    else:
        print("on a GPU: not measured: no GPU")
    for kind in ("rows that agree", "independent rows", "rows above the bottom"):
        result = large_vocabulary(kind, device, min(repeats, 5))
        show(f"large vocabulary on {device}, {kind}", result, 255, 256_000, bandwidth)


if __name__ == "__main__":
    main()
