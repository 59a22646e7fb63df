"""Private inference on a GPU: what aggregation, accounting and the ledger take beside a decode step.

    python benchmarks/gpu.py [--quick] [--compile] [--only bfloat16,float32,parts] [--json out.json]

On a GPU the model has the shape of Gemma 2 2B, with random weights: B = 255 rows, V = 256000. Without one it is the
embedded model on the CPU, B = 63. `bfloat16` and `float32` decode in whole runs, with the ledger, and say whether the
goal is met: everything but the forward pass takes at most 5 % of it. `parts` is the aggregation of one token, part by
part, and what of it runs on the processor wherever the logits are. `--compile` adds a step of a fixed shape that was
captured as a CUDA graph, and one that `torch.compile` made, beside the eager one: whether they have the same bits, and
whether rows are verified to be exact in them.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import one_thread  # noqa: F401

# isort: split
import numpy as np
import torch
from decode import CONTEXT, decode, now, seconds
from paired_times import Section, add_options, run_sections
from random_models import random_model, random_records

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ex_post.clipped_rows import GRID, Steps, integer_clip
from dpassay.accounting.ex_post.medians import Medians
from dpassay.base.arrays import Floats, Integers
from dpassay.data.records import builtin_records
from dpassay.mechanisms.models import decoding, row_shapes
from dpassay.mechanisms.models.decoding import FixedRows, RowShape
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY
from dpassay.mechanisms.private_inference import aggregation

ROWS, VOCABULARY = 255, 256_000  # on a GPU
KEYS = 4095  # records of the embedded model, in slots of 63: as in the README
TOKENS = 12
CLIP, TEMPERATURE, ROUNDING = 6.0, 1.5, 1e-12

Step = Callable[[], torch.Tensor]


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def where() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "the CPU, as there is no GPU"


@functools.cache
def model_of(dtype: torch.dtype) -> LanguageModel:
    """The model of this benchmark; one at a time is kept, because two may not fit."""
    if device() == "cpu":
        return LanguageModel.load(device="cpu", dtype=str(dtype).removeprefix("torch."))
    return random_model("Gemma 2 2B", "cuda", dtype)


def steps(dtype: torch.dtype, rounds: int) -> Section:
    """Decode steps in whole runs, and the peak of the GPU's memory."""
    model_of.cache_clear()
    model, name = model_of(dtype), str(dtype).removeprefix("torch.")
    if device() == "cpu":
        title, keys = f"the embedded model in {name}, B = 63, V = 1024, on {where()}", builtin_records("keys", KEYS, 0)
        own: dict[str, Any] = {"clip": 10.0, "temperature": 1.2, "batch_size": 63, "context_tokens": CONTEXT}
        return decode(name, title, model, keys, rounds, TOKENS, beside=False, **own)
    torch.cuda.reset_peak_memory_stats()
    title = f"Gemma 2 2B, random weights in {name}, B = {ROWS}, V = {model.vocabulary_size}, on {where()}"
    records = random_records(ROWS, CONTEXT - 2, model.vocabulary_size)
    section = decode(name, title, model, records, rounds, TOKENS, context_tokens=CONTEXT)
    (shape, exact), *_ = model._shapes.values()
    section.notes.append(
        f"{shape.rows} rows in a forward pass, rows {'verified' if exact else 'NOT verified'} as exact"
    )
    section.notes.append(f"peak of the GPU's memory: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    section.data["exact"], section.data["peak"] = exact, torch.cuda.max_memory_allocated()
    return section


def logits_of(kind: str, rows: int, vocabulary: int) -> torch.Tensor:
    """Logits that no model made: how much is left to sort depends on them."""
    generator = torch.Generator(device()).manual_seed(0)
    logits = torch.randn(rows, vocabulary, generator=generator, device=device())
    if kind == "rows that agree":  # up to noise, as those of similar contexts do
        return 8 * torch.randn(vocabulary, generator=generator, device=device()) + 0.8 * logits
    return logits if kind == "rows above the bottom" else 8 * logits


class KnownRows:
    """Rows whose middle is known, so that only what follows is timed."""

    def __init__(self, rows: aggregation.ClippedRows) -> None:
        self.shape = rows.shape
        half = len(self) // 2
        self._middle = rows.middle(range(half - 1, half + 2) if len(self) % 2 else range(half - 2, half + 2))

    def __len__(self) -> int:
        return self.shape[0]

    def middle(self, ranks: range) -> tuple[Integers, Steps]:
        return self._middle

    def live_steps(self, part: slice) -> Steps:
        raise NotImplementedError("no cost under add_remove reads the batch")


def aggregation_parts(logits: torch.Tensor, repeats: int) -> dict[str, dict[str, float]]:
    """Seconds of each part of one token's aggregation, for a median and for a mean; and `host`, of what runs on the
    processor even if the logits, shape (B, V), are on a GPU."""
    size = len(logits)
    laws: dict[str, Callable[[], aggregation.Aggregate]] = {
        "median": lambda: aggregation.median(
            logits, None, clip=CLIP, temperature=TEMPERATURE, adjacency=Adjacency.ADD_REMOVE
        ),
        "mean": lambda: aggregation.mean(logits, None, clip=CLIP, temperature=TEMPERATURE, denominator=size),
    }
    known = KnownRows(aggregation.clipped_rows(logits, CLIP))
    sums = aggregation.clipped_rows(logits, CLIP).sums()
    counted = (sums + size * integer_clip(CLIP)).astype(np.float64)  # what a GPU gives back

    def medians_on_host() -> None:
        medians = Medians.of_rows(known, clip=CLIP)
        law = aggregation.Aggregate(medians.median, CLIP, TEMPERATURE, logits, medians)
        aggregation.median_cost(law, law.draw(OS_ENTROPY), replaced=False, rounding=ROUNDING)

    def mean_on_host() -> None:
        scores: Floats = np.asarray((counted.astype(np.int64) - size * integer_clip(CLIP)) * GRID, dtype=np.float64)
        aggregation.Aggregate(scores, size * CLIP, size * TEMPERATURE, logits).draw(OS_ENTROPY)

    times: dict[str, dict[str, list[float]]] = {kind: {} for kind in laws}
    for _ in range(repeats + 1):
        for kind, aggregate in laws.items():
            marks = [now()]
            law = aggregate()
            marks.append(now())
            token = law.draw(OS_ENTROPY)
            marks.append(now())
            if law.medians is not None:
                aggregation.median_cost(law, token, replaced=False, rounding=ROUNDING)
                marks.append(now())
            taken = np.diff(marks, axis=0).min(axis=1)  # wall or processor time, whichever is less
            for part, value in zip(("aggregate", "draw", "costs"), taken.tolist(), strict=False):
                times[kind].setdefault(part, []).append(value)
    result = {kind: {part: float(np.median(v[1:])) for part, v in parts.items()} for kind, parts in times.items()}
    result["median"]["host"] = seconds(medians_on_host, repeats)
    result["mean"]["host"] = seconds(mean_on_host, repeats)
    return result


def parts(rounds: int) -> Section:
    """One token's aggregation, part by part, beside reading its logits once."""
    large = device() == "cuda"
    rows, kinds = ROWS, ("rows that agree", "independent rows", *(["rows above the bottom"] if large else []))
    block = torch.ones(2**27 if large else 2**24, device=device())
    bandwidth = 4 * block.numel() / seconds(block.sum, 5)
    title = f"one token of one slot, B = {rows}, V = {VOCABULARY}, logits of no model, on {where()}"
    section = Section(
        "parts", title, ("logits", "", "aggregate ms", "draw ms", "costs ms", "all ms", "on the processor ms")
    )
    for kind in kinds:
        measured = aggregation_parts(logits_of(kind, rows, VOCABULARY), rounds)
        for way, taken in measured.items():
            own = [taken.get(part, 0.0) for part in ("aggregate", "draw", "costs")]
            section.rows.append((kind, way, *(f"{1e3 * value:.2f}" for value in (*own, sum(own), taken["host"]))))
        section.data[kind] = measured
    limit = 4 * rows * VOCABULARY / bandwidth
    section.notes.append(
        f"reading these logits once takes {1e3 * limit:.2f} ms at {bandwidth / 1e9:.0f} GB/s. The processor's part "
        "remains on a GPU; slots that are decoded together share it among up to 8 threads"
    )
    return section


class StaticTile(decoding._Tile):
    """A tile whose step reads tokens and positions where they always lie, as a captured graph must.

    `prepare` makes the step that runs of one that computes logits; `network` is the one that steps call, if it is not
    that of the contexts.
    """

    prepare: Callable[[Step], Step] = staticmethod(lambda step: step)
    network: Any = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._all = torch.arange(self.rows, device=self._device)
        self._tokens = torch.zeros(self.rows, 1, dtype=torch.long, device=self._device)
        self._places = torch.zeros_like(self._tokens)
        self._run: Step | None = None
        self._network = self._network if self.network is None else self.network

    def logits(self) -> torch.Tensor:
        self._tokens.copy_(self._token[:, None])
        self._places.copy_(self._position[:, None])
        if self._run is None:
            self._run = type(self).prepare(self._step)
        return self._run()

    def _step(self) -> torch.Tensor:
        return self.forward(self._all, slice(None), self._tokens, self._places, self._shape.positions)


def captured(step: Step) -> Step:
    """The step as a CUDA graph; what it writes to the cache is the same each time until its buffers change."""
    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = step()

    def replay() -> torch.Tensor:
        graph.replay()
        return logits

    return replay


@contextmanager
def tiles(prepare: Callable[[Step], Step], network: Any = None) -> Iterator[None]:
    """Whatever decodes in fixed shapes meanwhile, the check of rows included, takes prepared steps."""
    own = type("PreparedTile", (StaticTile,), {"prepare": staticmethod(prepare), "network": network})
    with mock.patch.object(decoding, "_Tile", own):
        yield


def traced(model: LanguageModel, shape: RowShape, repeats: int) -> tuple[float, torch.Tensor]:
    """Seconds of a step, wall or processor time, whichever is less, and the logits of all steps."""
    contexts = row_shapes.contexts_of(model.vocabulary_size, shape, seed=0)
    rows = FixedRows(model.network, contexts, shape=shape, vocabulary_size=model.vocabulary_size)
    times, found = [], []
    for index in range(repeats + 1):
        start = now()
        logits = rows.logits()
        times.append(now() - start)
        found.append(logits[:4].cpu())
        rows.append((7 * torch.arange(rows.rows) + 11 * index) % model.vocabulary_size)
    return float(np.median(times[1:], axis=0).min()), torch.stack(found)


def compiled(model: LanguageModel, shape: RowShape, repeats: int, backend: str = "inductor") -> Section:
    """A step of a public shape: eager, with a CUDA graph, and by `torch.compile`."""
    title = f"a step of {shape.rows} rows and {shape.positions} positions, {model.name} in {model.dtype}, on {where()}"
    section = Section("compile", title, ("step", "ms", "bits of eager", "rows verified as exact"))
    ways: dict[str, Callable[[], Any]] = {
        "eager": lambda: tiles(lambda step: step),
        "CUDA graph": lambda: tiles(captured),
        "torch.compile": lambda: tiles(lambda step: step, torch.compile(model.network, dynamic=False, backend=backend)),
    }
    if model.device.type == "cpu":
        ways.pop("CUDA graph")
    _, expected = traced(model, shape, repeats)
    for way, prepared in ways.items():
        try:
            with prepared():
                taken, found = traced(model, shape, repeats)
                exact = row_shapes.verify(model.network, model.vocabulary_size, shape)
        except Exception as error:  # what cannot be compiled here is said, and the rest goes on
            section.rows.append((way, "fails", f"{type(error).__name__}: {error}".splitlines()[0][:100], ""))
            continue
        same = torch.equal(found, expected)
        section.rows.append((way, f"{1e3 * taken:.2f}", "yes" if same else "no", "yes" if exact else "no"))
        section.data[way] = {"seconds": taken, "same": same, "exact": exact}
    return section


def compiled_steps(rounds: int) -> Section:
    model_of.cache_clear()
    model = model_of(torch.bfloat16 if device() == "cuda" else torch.float32)
    rows = 256 if device() == "cuda" else 64
    positions = CONTEXT + TOKENS * rounds + 2
    return compiled(model, row_shapes.preferred(rows, CONTEXT, positions, positions), TOKENS * rounds)


SECTIONS: dict[str, tuple[Callable[[int], Section], int, int]] = {
    "bfloat16": (functools.partial(steps, torch.bfloat16), 3, 1),
    "float32": (functools.partial(steps, torch.float32), 3, 1),
    "parts": (parts, 5, 1),
}
COMPILE: dict[str, tuple[Callable[[int], Section], int, int]] = {"compile": (compiled_steps, 3, 1)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, SECTIONS)
    parser.add_argument("--compile", action="store_true", help="measure a captured and a compiled step, too")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    sections = SECTIONS | (COMPILE if options.compile else {})
    return run_sections(sections, parser, options, torch=torch.__version__, device=where())


if __name__ == "__main__":
    sys.exit(main())
