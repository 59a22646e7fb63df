"""What aggregation and accounting cost beside the model's forward pass, per token of one slot.

    python benchmarks/aggregation_cost.py [--quick]

Two settings: a batch of 64 contexts of a GPT-2-small-shaped model (random weights, vocabulary of 50257) on the CPU, and
the embedded model with 65 slots of 63 contexts. Printed for each: the time of one decode step, of clipping, sorting,
drawing and accounting, of the ledger's transaction, their ratio, and the limit: reading the logits once at the memory
bandwidth that is measured in the same run.
"""

from __future__ import annotations

import argparse
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

from cupel.accounting.adjacency import Adjacency
from cupel.accounting.ledger import Charge, Commit, Ledger
from cupel.accounting.medians import Medians, clip_steps
from cupel.mechanisms import aggregation
from cupel.mechanisms.decoding import DecodeSession
from cupel.mechanisms.language_model import LanguageModel
from cupel.mechanisms.private_inference import PrivateInference
from cupel.mechanisms.randomness import OS_ENTROPY
from cupel.mechanisms.records import builtin_records


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The median time of one call, after one that warms up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def read_bandwidth() -> float:
    """Bytes a second that one thread reads from memory: a sum over 512 MiB."""
    block = np.ones(2**26)
    return block.nbytes / seconds(block.sum, 5)


@dataclass(frozen=True)
class Measured:
    """Seconds of one token of one slot."""

    forward: float
    parts: dict[str, float]
    ledger: float

    @property
    def aggregation(self) -> float:
        return sum(self.parts.values()) + self.ledger


def aggregation_parts(logits: np.ndarray, clip: float, temperature: float, repeats: int) -> dict[str, float]:
    """Seconds of each part of one token's aggregation; `logits` has shape (B, V)."""
    steps = clip_steps(logits, clip)
    law = aggregation.median(logits, None, clip=clip, temperature=temperature, adjacency=Adjacency.ADD_REMOVE)
    token = law.draw(OS_ENTROPY)
    return {
        "clip": seconds(lambda: clip_steps(logits, clip), repeats),
        "sort and medians": seconds(lambda: Medians.of_steps(steps, clip=clip), repeats),
        "draw": seconds(lambda: law.draw(OS_ENTROPY), repeats),
        "costs": seconds(lambda: aggregation.median_cost(law, token, replaced=False, rounding=1e-12), repeats),
    }


def ledger_step(mechanism: PrivateInference, repeats: int) -> float:
    """Seconds of one transaction, which commits one token of every slot and charges the next."""
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
            value = {"tokens": [1] * len(slots), "costs": [costs] * len(slots)}
            commit = Commit(key=f"tokens/{step}", value=value, realised=dict.fromkeys(slots, costs))
            run.step(commit=commit, charge=charge(step + 1))

        return seconds(work, repeats)


def decode_step(session: DecodeSession, repeats: int) -> tuple[float, np.ndarray]:
    """Seconds of one forward of all rows, and its logits."""

    def work() -> None:
        session.logits()
        session.append([5] * session.rows)

    taken = seconds(work, repeats)
    return taken, session.logits().numpy()


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
    session = DecodeSession(network, contexts, vocabulary_size=config.vocab_size, rows_per_forward=batch)
    forward, logits = decode_step(session, repeats)
    mechanism = PrivateInference(
        aggregate="median", clip=6.0, temperature=1.5, batch_size=batch, tokens=1, records=batch
    )
    # Random weights give nearly flat logits; spread them to the range of a trained model's.
    spread = (logits * (8 / logits.std())).astype(np.float32)
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
    forward, logits = decode_step(model.session(contexts), repeats)
    size = int(np.median(batches.sizes))
    parts = aggregation_parts(logits[:size], 10.0, 1.2, 20 * repeats)
    slots = mechanism.total_slots
    return Measured(forward / slots, parts, ledger_step(mechanism, repeats) / slots), size


def show(title: str, measured: Measured, batch: int, vocabulary: int, bandwidth: float) -> None:
    limit = batch * vocabulary * 4 / bandwidth
    print(f"{title}: B = {batch}, V = {vocabulary}, milliseconds a token and slot")
    print(f"  forward pass              {1e3 * measured.forward:9.3f}   ({torch.get_num_threads()} threads)")
    for name, value in (*measured.parts.items(), ("ledger transaction", measured.ledger)):
        print(f"  {name:25s} {1e3 * value:9.3f}")
    print(f"  aggregation + accounting  {1e3 * measured.aggregation:9.3f}   (1 thread; slots run side by side)")
    print(f"  ratio to the forward pass {measured.aggregation / measured.forward:9.3f}")
    print(f"  limit: reading {batch * vocabulary * 4 / 1e6:.1f} MB of logits once at {bandwidth / 1e9:.1f} GB/s takes")
    print(f"  {'':25s} {1e3 * limit:9.3f}   all of it takes {measured.aggregation / limit:.1f} times as long")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few repeats")
    repeats = 3 if parser.parse_args().quick else 15
    print(f"torch {torch.__version__}, numpy {np.__version__}, {os.cpu_count()} cores")
    bandwidth = read_bandwidth()
    show("GPT-2-small shape", large_model(64, repeats), 64, 50257, bandwidth)
    measured, size = embedded_model(repeats)
    show("embedded model, 65 slots", measured, size, 1024, bandwidth)


if __name__ == "__main__":
    main()
