"""Decoding for throughput: aggregated decode beside plain decode, audits of whole runs, shared beginnings, memory.

    python benchmarks/decode.py [--quick] [--only cpu,audit,beginning,memory] [--json out.json]

One thread, on the CPU; `gpu.py` measures a GPU. What is compared runs in turns, and medians are printed. Steps are
timed in wall and in processor time, which a busy machine disturbs less but which leaves out waiting for the disk; goals
take the worse of the two. A goal that is missed is printed as MISSED, and the exit code is then 1 (with --quick, which
takes fewer rounds, it is 0). The limit of a step is the larger of its multiplications at the speed of a large matrix
product and its weights at the speed of a long sum, both measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

from dpassay.accounting.ledger.run import Run
from dpassay.data.records import Record
from dpassay.mechanisms.models.decoding import FixedRows
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate

Moment = NDArray[np.float64]  # wall and processor time, seconds

CONTEXT = 32  # tokens of a context
SHARE = 0.05  # of a forward pass, for aggregation, accounting and the ledger
PLAIN = 0.9  # of plain decode's tokens a second
PLAINLY, CALLS = "plain decode (transformers)", "generate(max_new_tokens=1)"


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


@dataclass(frozen=True)
class Steps:
    """Wall and processor seconds of one token of every row: medians over all steps but the first."""

    whole: Moment
    forward: Moment
    ledger: Moment

    @property
    def share(self) -> Moment:
        """Everything but the forward pass, as a share of it."""
        return self.whole / self.forward - 1


def aggregated(model: LanguageModel, records: list[Record], aggregate: Any, tokens: int, **changes: Any) -> Steps:
    """Steps of a whole run, whose slots are decoded together; `changes` are of the mechanism, by default one slot."""
    base: dict[str, Any] = {"clip": 9.0 if aggregate == "mean" else 6.0, "temperature": 1.5, "batch_size": len(records)}
    mechanism = PrivateInference(aggregate=aggregate, tokens=tokens, records=len(records), **(base | changes))
    mechanism.row_plan(model)  # verified once for each model, and not timed
    ends: list[Moment] = []
    forwards: list[Moment] = []
    commits: list[Moment] = []

    def timed(work: Callable[..., Any], times: list[Moment]) -> Callable[..., Any]:
        def timed_work(*given: Any, **named: Any) -> Any:
            start = now()
            result = work(*given, **named)
            times.append(now() - start)
            return result

        return timed_work

    with (
        begun(mechanism) as run,
        mock.patch.object(FixedRows, "logits", timed(FixedRows.logits, forwards)),
        mock.patch.object(Run, "step", timed(Run.step, commits)),
    ):
        rows = len(records) + mechanism.total_slots
        generate(
            mechanism, records, model, run, key=KEY, rows_at_once=rows, progress=lambda done, total: ends.append(now())
        )
    whole = np.median(np.diff(ends, axis=0), axis=0)
    return Steps(whole, np.median(forwards[1:], axis=0), np.median(commits[1:], axis=0))


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


def decode(
    name: str,
    title: str,
    model: LanguageModel,
    records: list[Record],
    rounds: int,
    tokens: int,
    beside: bool = True,
    **changes: Any,
) -> Section:
    """Steps of aggregated decode, and `beside` plain decode and one call of `generate` a token, for which contexts must
    be of equal length; `changes` are of the mechanism."""
    headers = ("one token of every row", "ms", "tokens/s", "processor ms")
    parts = ("forward ms", "ledger ms", "share of the forward pass: wall", "processor")
    section = Section(name, title, (*headers, *parts))
    rows, times, steps = len(records), dict[str, list[Moment]](), dict[str, list[Steps]]()
    contexts = torch.tensor([])
    if beside:
        end = model.end_of_text_ids[0]
        contexts = torch.tensor([[end, *model.encode(item.text), end] for item in records], device=model.device)
    for _ in range(rounds):
        for kind in ("median", "mean"):
            steps.setdefault(f"aggregated, {kind}", []).append(aggregated(model, records, kind, tokens, **changes))
        if beside:
            times.setdefault(PLAINLY, []).append(plain(model, contexts, tokens))
    if beside:
        times[CALLS] = [generate_call(model, contexts)]
    times |= {way: [item.whole for item in found] for way, found in steps.items()}
    results = {way: np.median(value, axis=0) for way, value in times.items()}
    shares = {way: [item.share for item in found] for way, found in steps.items()}
    share = {way: np.median(value, axis=0) for way, value in shares.items()}
    for way, (wall, cpu) in results.items():
        own = ["", "", "", ""]
        if way in share:
            middle = [np.median([getattr(item, part)[0] for item in steps[way]]) for part in ("forward", "ledger")]
            own = [*(f"{1e3 * value:.2f}" for value in middle), *(f"{100 * value:.1f} %" for value in share[way])]
        section.rows.append((way, f"{1e3 * wall:.1f}", f"{rows / wall:.1f}", f"{1e3 * cpu:.1f}", *own))
    for way, found in share.items():
        goal = f"{name}, {way}: aggregation, accounting and ledger over the forward pass"
        section.goals.append(Goal(goal, float(found.max()), most=SHARE))
    if beside:
        least, why = step_limit(model, rows)
        section.notes.append(why)
        for way in share:
            to_limit, to_calls = results[way].min() / least, (results[CALLS] / results[way]).min()
            section.notes.append(f"{way}: {to_limit:.2f} times the limit, {to_calls:.1f} times as fast as generate")
            faster = float((results[PLAINLY] / results[way]).min())
            section.goals.append(Goal(f"{name}, {way}: tokens/s over plain decode's", faster, least=PLAIN))
        section.data["limit"] = least
    section.data |= {"seconds": _lists(times), "shares": _lists(shares)}
    return section


def _lists(measured: dict[str, list[Moment]]) -> dict[str, list[list[float]]]:
    return {way: [value.tolist() for value in values] for way, values in measured.items()}


def on_cpu(rounds: int) -> Section:
    title = f"GPT-2 small, random weights, B = 64, V = 50257, contexts of {CONTEXT}, on the CPU"
    model = random_model("GPT-2 small")
    return decode("cpu", title, model, random_records(64, CONTEXT - 2, model.vocabulary_size), rounds, 8)


SECTIONS: dict[str, tuple[Callable[[int], Section], int, int]] = {
    "cpu": (on_cpu, 2, 1),
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
