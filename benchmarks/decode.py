"""Decoding for throughput: aggregated decode beside plain decode, audits of whole runs, shared beginnings, memory.

    python benchmarks/decode.py [--quick] [--only cpu,gpu,audit,beginning,memory] [--json out.json]

One thread. What is compared runs in turns, and medians are printed. Steps are timed in wall and in processor time,
which a busy machine disturbs less but which leaves out waiting for the disk; goals take the worse of the two. A goal
that is missed is printed as MISSED, and the exit code is then 1 (with --quick, which takes fewer rounds, it is 0). The
limit of a step is the larger of its multiplications at the speed of a large matrix product and its weights at the speed
of a long sum, both measured in the same run.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import one_thread  # noqa: F401

# isort: split
import numpy as np
import torch
from numpy.typing import NDArray
from paired_times import Goal, Section, add_options, run_sections
from random_models import random_model, random_records
from whole_runs import KEY, audit, beginning, begun, measure_memory, memory

from dpassay.accounting.adjacency import Adjacency
from dpassay.data.records import Record
from dpassay.mechanisms.models.decoding import FixedRows
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY
from dpassay.mechanisms.private_inference import aggregation
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate

Moment = NDArray[np.float64]  # wall and processor time, seconds

CONTEXT = 32  # tokens of a context
SHARE = 0.05  # of a step, for aggregation, accounting and the ledger
PLAIN = 0.9  # of plain decode's tokens a second


def now() -> Moment:
    """Wall and processor time, once the GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return np.array([time.perf_counter(), time.process_time()])


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The median time of one call, after one that warms up: wall or processor time, whichever is less."""
    times = []
    for _ in range(repeats + 1):
        start = now()
        work()
        times.append(now() - start)
    return float(np.median(times[1:], axis=0).min())


def aggregated(model: LanguageModel, records: list[Record], aggregate: Any, tokens: int) -> tuple[Moment, Moment]:
    """Seconds of one step of a whole run, and of the model's forward in it: medians over all steps but the first."""
    clip = 9.0 if aggregate == "mean" else 6.0
    count = len(records)
    mechanism = PrivateInference(
        aggregate=aggregate, clip=clip, temperature=1.5, batch_size=count, tokens=tokens, records=count
    )
    ends: list[Moment] = []
    forwards: list[Moment] = []
    forward = FixedRows.logits

    def timed(session: FixedRows) -> torch.Tensor:
        start = now()
        logits = forward(session)
        forwards.append(now() - start)
        return logits

    with begun(mechanism) as run, mock.patch.object(FixedRows, "logits", timed):
        generate(
            mechanism, records, model, run, key=KEY, rows_at_once=count, progress=lambda done, total: ends.append(now())
        )
    return np.median(np.diff(ends, axis=0), axis=0), np.median(forwards[1:], axis=0)


@torch.inference_mode()
def plain(model: LanguageModel, contexts: torch.Tensor, tokens: int) -> Moment:
    """Seconds of one step of the same model and rows with the cache of `transformers`, each row's likeliest token."""
    output = model.network(input_ids=contexts[:, :-1], use_cache=True, logits_to_keep=1)
    cache, token, ends = output.past_key_values, contexts[:, -1:], []
    for _ in range(tokens):
        logits = model.network(input_ids=token, past_key_values=cache, use_cache=True).logits
        token = logits[:, -1:].argmax(dim=-1)
        ends.append(now())
    return np.median(np.diff(ends, axis=0), axis=0)


def generate_call(model: LanguageModel, contexts: torch.Tensor) -> Moment:
    """Seconds of one `generate(max_new_tokens=1)` that gives the logits of all rows."""
    start = now()
    out = model.network.generate(
        contexts,
        attention_mask=torch.ones_like(contexts),
        max_new_tokens=1,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    out.logits[0].cpu()
    return now() - start


def step_limit(model: LanguageModel, rows: int) -> tuple[float, str]:
    """Seconds that one step of so many rows takes at least, and why."""
    device, dtype = model.device, model.network.dtype
    head, shown = model.network.get_output_embeddings().weight, model.network.get_input_embeddings().weight
    inner = (weight for name, weight in model.network.named_parameters() if weight.dim() == 2 and "wpe" not in name)
    numbers = head.numel() + sum(weight.numel() for weight in inner if weight is not head and weight is not shown)
    side = 8192 if device.type == "cuda" else 1024
    square = torch.ones(side, side, device=device, dtype=dtype)
    flops = 2 * side**3 / seconds(lambda: square @ square, 5)
    block = torch.ones(2**27, device=device, dtype=torch.float32)
    bandwidth = block.numel() * 4 / seconds(block.sum, 5)
    work, size = 2 * numbers * rows, numbers * dtype.itemsize
    taken = max(work / flops, size / bandwidth)
    return taken, (
        f"limit: {work / 1e9:.1f} GFLOP at {flops / 1e9:.0f} GFLOP/s take {1e3 * work / flops:.1f} ms, "
        f"{size / 1e6:.0f} MB of weights at {bandwidth / 1e9:.1f} GB/s take {1e3 * size / bandwidth:.1f} ms"
    )


def decode(name: str, title: str, device: str, rows: int, rounds: int, tokens: int) -> Section:
    """Steps of aggregated decode beside plain decode and one call of `generate` a token."""
    headers = ("one token of every row", "ms", "tokens/s", "processor ms", "share beside the forward pass: wall", "cpu")
    section = Section(name, f"{title}, on {torch.cuda.get_device_name() if device == 'cuda' else device}", headers)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = random_model(title.partition(",")[0], device, dtype)
    records = random_records(rows, CONTEXT - 2, model.vocabulary_size)
    ids = [[model.end_of_text_ids[0], *model.encode(record.text), model.end_of_text_ids[0]] for record in records]
    contexts = torch.tensor(ids, device=device)
    times: dict[str, list[Moment]] = {}
    shares: dict[str, list[Moment]] = {}
    for _ in range(rounds):
        for kind in ("median", "mean"):
            step, forward = aggregated(model, records, kind, tokens)
            times.setdefault(f"aggregated, {kind}", []).append(step)
            shares.setdefault(f"aggregated, {kind}", []).append(1 - forward / step)
        times.setdefault("plain decode (transformers)", []).append(plain(model, contexts, tokens))
    times["generate(max_new_tokens=1)"] = [generate_call(model, contexts)]
    results = {way: np.median(value, axis=0) for way, value in times.items()}
    share = {way: np.median(value, axis=0) for way, value in shares.items()}
    for way, (wall, cpu) in results.items():
        own = [f"{value:.3f}" for value in share.get(way, ())] or ["", ""]
        section.rows.append((way, f"{1e3 * wall:.1f}", f"{rows / wall:.1f}", f"{1e3 * cpu:.1f}", *own))
    least, why = step_limit(model, rows)
    slow, calls = results["plain decode (transformers)"], results["generate(max_new_tokens=1)"]
    section.notes.append(why)
    for way in share:
        to_limit, to_calls = results[way].min() / least, (calls / results[way]).min()
        section.notes.append(f"{way}: {to_limit:.2f} times the limit, {to_calls:.1f} times as fast as generate")
        section.goals += [
            Goal(f"{name}, {way}: share of aggregation, accounting, ledger", float(share[way].max()), most=SHARE),
            Goal(f"{name}, {way}: tokens/s over plain decode's", float((slow / results[way]).min()), least=PLAIN),
        ]
    section.data = {"seconds": _lists(times), "shares": _lists(shares), "limit": least}
    return section


def _lists(measured: dict[str, list[Moment]]) -> dict[str, list[list[float]]]:
    return {way: [value.tolist() for value in values] for way, values in measured.items()}


def on_cpu(rounds: int) -> Section:
    title = f"GPT-2 small, random weights, B = 64, V = 50257, contexts of {CONTEXT}"
    return decode("cpu", title, "cpu", 64, rounds, 8)


def on_gpu(rounds: int) -> Section:
    title = f"Gemma 2 2B, random weights in bfloat16, B = 255, V = 256000, contexts of {CONTEXT}"
    if torch.cuda.is_available():
        return decode("gpu", title, "cuda", 255, rounds, 12)
    logits = 8 * torch.randn(255, 256_000, generator=torch.Generator().manual_seed(0))
    taken = {kind: seconds(functools.partial(aggregate_once, logits, kind), 1 + rounds) for kind in ("median", "mean")}
    notes = [
        f"aggregation of one token ({kind}, logits to token and costs) on one core: {1e3 * value:.0f} ms"
        for kind, value in taken.items()
    ]
    return Section("gpu", title, (), notes=["not measured: no GPU", *notes], data={"aggregation": taken})


def aggregate_once(logits: torch.Tensor, kind: str) -> None:
    """A law, a token and its costs for one slot; `logits` has shape (B, V)."""
    if kind == "mean":
        aggregation.mean(logits, None, clip=9.0, temperature=1.5, denominator=len(logits)).draw(OS_ENTROPY)
        return
    law = aggregation.median(logits, None, clip=6.0, temperature=1.5, adjacency=Adjacency.ADD_REMOVE)
    aggregation.median_cost(law, law.draw(OS_ENTROPY), replaced=False, rounding=1e-12)


SECTIONS: dict[str, tuple[Callable[[int], Section], int, int]] = {
    "cpu": (on_cpu, 2, 1),
    "gpu": (on_gpu, 3, 1),
    "audit": (audit, 3, 1),
    "beginning": (beginning, 2, 1),
    "memory": (memory, 1, 1),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, SECTIONS)
    parser.add_argument("--measure-memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.measure_memory:
        print(json.dumps(measure_memory(options.measure_memory)))
        return 0
    return run_sections(SECTIONS, parser, options, torch=torch.__version__)


if __name__ == "__main__":
    sys.exit(main())
