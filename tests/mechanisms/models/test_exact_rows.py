"""Rows of fixed shapes: a row's logits are the same bits whatever other rows hold, or the model is refused.

Nothing here has a tolerance: bits are equal or they are not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from little_inference import KEY, Watcher, mechanism
from small_models import ARCHITECTURES, config, save_model
from watched_row import CHANGES, OTHERS, ROW, STEPS

from dpassay.data.records import Record
from dpassay.mechanisms.models import row_modules, row_shapes
from dpassay.mechanisms.models.decoding import FixedRows, RowShape
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.private_inference.loop import generate

SHAPE = RowShape(rows=4, context=60, positions=70, pinned=70)
"""Smaller than most changes have rows, so that the watched row moves between forward passes."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def bits(logits: Any) -> Any:
    return np.ascontiguousarray(torch.as_tensor(logits).numpy()).view(np.int32)


def trace(network: Any, before: list[list[int]], behind: list[list[int]], shape: RowShape = SHAPE) -> Any:
    """The bits of the watched row's logits: a document, back to the context, another document."""
    contexts, vocabulary = [*before, ROW, *behind], network.config.vocab_size
    rows = FixedRows(network, contexts, shape=shape, vocabulary_size=vocabulary)
    mine, seen = len(before), []
    for step in range(2 * STEPS):
        seen.append(rows.logits()[mine].clone())
        tokens = [(7 * step + 3 * row + len(contexts)) % vocabulary for row in range(len(contexts))]
        tokens[mine] = (11 * step + 1) % vocabulary
        rows.append(tokens)
        again = [(step + row) % 3 == 0 for row in range(len(contexts))]
        again[mine] = step == STEPS - 1
        rows.reset(torch.tensor(again))
    return bits(torch.stack(seen))


def random_network(architecture: str, dtype: str = "float32") -> Any:
    torch.manual_seed(0)
    network = transformers.AutoModelForCausalLM.from_config(config(architecture, 300), attn_implementation="eager")
    with torch.no_grad():
        for weight in network.parameters():
            weight *= 8 if weight.dim() > 1 else 1
    return network.to(DTYPES[dtype]).eval()


every_network = pytest.mark.parametrize("dtype", DTYPES)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_row_keeps_its_bits_whatever_other_rows_hold(architecture: str, dtype: str) -> None:
    network = random_network(architecture, dtype)
    row_modules.check(network)
    own = trace(network, OTHERS[:1], OTHERS[1:])
    for change in CHANGES.values():
        np.testing.assert_array_equal(trace(network, *change), own)
    assert row_shapes.verify(network, 300, SHAPE)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@every_network
def test_bits_are_kept_at_a_width_that_kernels_cut_into_blocks(dtype: str, threads: int) -> None:
    torch.manual_seed(0)
    shape = {"vocab_size": 1000, "n_positions": 128, "n_embd": 256, "n_layer": 2, "n_head": 4}
    given = transformers.GPT2Config(**shape)
    network = transformers.AutoModelForCausalLM.from_config(given, attn_implementation="eager").to(DTYPES[dtype]).eval()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        result, exact = row_shapes.find(network, 1000, RowShape(64, 48, 80, 80))
    finally:
        torch.set_num_threads(before)
    assert exact
    assert result.rows == 64


# --- Models that couple rows ------------------------------------------------------------------------------------------

RARE = 100.0
"""A hidden state above this sets the coupling off. Those of random tokens are normalised to at most √32 < 6."""


class Coupled(torch.nn.Module):
    """An output layer that lets rows meet, as `how` says, and only where some row's state is very large."""

    def __init__(self, head: torch.nn.Module, how: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.head, self.how = head, how
        self.weight = head.weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rare = (hidden.abs() > RARE).any()
        logits: torch.Tensor = self.head(torch.where(rare, self.how(hidden), hidden))
        return logits


class Experts(Coupled):
    """Room for one row only: the others are passed over."""


class BatchScale(Coupled):
    """Rounded to a grid whose scale is that of the whole batch."""


class SharedCache(Coupled):
    """Adds what earlier forward passes left behind."""


class BatchNorm(Coupled):
    """Normalised over the batch."""


def _first(hidden: torch.Tensor) -> torch.Tensor:
    order = torch.arange(len(hidden))[:, None, None]
    return torch.where(order < 1, hidden, torch.zeros_like(hidden))


def _scaled(hidden: torch.Tensor) -> torch.Tensor:
    scale = hidden.abs().max() / 127
    return torch.round(hidden / scale) * scale


def _remembering() -> Callable[[torch.Tensor], torch.Tensor]:
    seen: list[torch.Tensor] = []

    def how(hidden: torch.Tensor) -> torch.Tensor:
        seen.append(hidden.mean(dim=0, keepdim=True))
        return hidden + torch.stack(seen[-2:]).mean(dim=0)

    return how


def _normalised(hidden: torch.Tensor) -> torch.Tensor:
    return (hidden - hidden.mean(dim=0)) / (1 + hidden.std(dim=0, correction=0))


COUPLINGS: dict[str, Callable[[Any], None]] = {
    "experts": lambda network: _replace_head(network, Experts, _first),
    "a scale a batch": lambda network: _replace_head(network, BatchScale, _scaled),
    "a shared cache": lambda network: _replace_head(network, SharedCache, _remembering()),
    "batch norm": lambda network: _replace_head(network, BatchNorm, _normalised),
    "a hook": lambda network: _add_hook(network),
    "a forward of its own": lambda network: _own_forward(network),
}


def _replace_head(network: Any, kind: type[Coupled], how: Callable[[torch.Tensor], torch.Tensor]) -> None:
    network.lm_head = kind(network.lm_head, how)


def _add_hook(network: Any) -> None:
    coupled = Coupled(network.lm_head, _scaled)
    network.lm_head.register_forward_pre_hook(lambda module, given: (_where_rare(given[0], coupled.how),))


def _own_forward(network: Any) -> None:
    original = network.lm_head.forward
    network.lm_head.forward = lambda hidden: original(_where_rare(hidden, _normalised))


def _where_rare(hidden: torch.Tensor, how: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return torch.where((hidden.abs() > RARE).any(), how(hidden), hidden)


def _with_a_rare_token(network: Any) -> None:
    """One token, which random tokens of a test may well miss, has an embedding that sets couplings off."""
    with torch.no_grad():
        network.model.embed_tokens.weight[RARE_TOKEN] = 0
        network.model.embed_tokens.weight[RARE_TOKEN, 0] = 1e4
        network.model.norm.weight[0] = 1e3
        others = torch.arange(300) != RARE_TOKEN
        network.model.embed_tokens.weight[others, 0] = 0
        for layer in network.model.layers:
            layer.self_attn.o_proj.weight[0] = 0
            layer.mlp.down_proj.weight[0] = 0


RARE_TOKEN = 299


@pytest.mark.grid
@pytest.mark.parametrize("kind", COUPLINGS)
def test_a_coupling_that_samples_miss_is_refused_by_its_class(kind: str) -> None:
    """Rows of random tokens keep their bits, and a row beside the rare token does not: only the class tells."""
    network = random_network("llama")
    _with_a_rare_token(network)
    row_modules.check(network)
    COUPLINGS[kind](network)
    beside = trace(network, [OTHERS[0]], [OTHERS[1]]), trace(network, [[*OTHERS[0], RARE_TOKEN]], [OTHERS[1]])
    assert not np.array_equal(*beside)
    vocabulary = RARE_TOKEN  # the test's random tokens are those below it
    assert row_shapes.verify(network, vocabulary, SHAPE)
    with pytest.raises(ValueError, match=r"lm_head.*(not known to compute each row|hook or its own forward)") as error:
        row_modules.check(network)
    assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("ignore")  # the library's own quantisation is to be replaced by another one
def test_modules_of_torch_and_transformers_that_couple_rows_are_refused_by_name() -> None:
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    mixtral = transformers.MixtralConfig(**shape, num_key_value_heads=2, vocab_size=300, num_local_experts=4)
    with pytest.raises(ValueError, match="MixtralForCausalLM, which is not known"):
        row_modules.check(transformers.AutoModelForCausalLM.from_config(mixtral))
    network = random_network("llama")
    network.model.norm = torch.nn.BatchNorm1d(32)
    with pytest.raises(ValueError, match=r"module model\.norm is a BatchNorm1d"):
        row_modules.check(network)
    quantised = torch.ao.quantization.quantize_dynamic(random_network("llama"), {torch.nn.Linear})  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match="is a Linear, which is not known"):  # torch.ao.nn.quantized.dynamic
        row_modules.check(quantised)


def test_weights_that_are_no_plain_tensors_are_refused() -> None:
    class Scaled(torch.Tensor):
        """As libraries for quantisation have them."""

    network = random_network("llama")
    weight = network.lm_head.weight.data.as_subclass(Scaled)
    network.lm_head._parameters["weight"] = weight
    with pytest.raises(ValueError, match="holds a Scaled, which may quantise all rows"):
        row_modules.check(network)


def test_the_bit_for_bit_check_sees_a_coupling_of_ordinary_rows() -> None:
    """A scale of the whole batch moves every row a little: no number of rows is exact but one by itself."""
    network = random_network("llama")
    original = network.lm_head.forward
    network.lm_head.forward = lambda hidden: original(hidden * (1 + 1e-6 * hidden.abs().max()))
    assert not row_shapes.verify(network, 300, SHAPE)
    result, exact = row_shapes.find(network, 300, SHAPE)
    assert (result.rows, exact) == (1, True)


def test_kernels_that_do_not_repeat_themselves_are_exact_at_no_number_of_rows() -> None:
    network = random_network("llama")
    original, count = network.lm_head.forward, iter(range(10**6))
    network.lm_head.forward = lambda hidden: original(hidden * (1 + 1e-5 * (next(count) % 7)))
    assert row_shapes.find(network, 300, SHAPE) == (SHAPE, False)


# --- Frequencies that follow the longest row --------------------------------------------------------------------------

LONG = [[7 + token % 90 for token in range(50)]]


def unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpassay.mechanisms.models.decoding.row_modules.pin", lambda network, positions: None)


@pytest.mark.grid
@pytest.mark.parametrize("architecture", ["phi3-longrope", "llama-dynamic", "gemma3-dynamic"])
def test_frequencies_are_pinned_to_the_public_length(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpinned, a row of 50 tokens moves the one beside it, and a check of shorter rows says nothing of it."""
    network = random_network(architecture)
    row_modules.check(network)
    fresh = copy.deepcopy(network)
    with monkeypatch.context() as patch:
        unpinned(patch)
        assert row_shapes.verify(network, 300, RowShape(4, 16, 20, 20))
        assert not row_shapes.verify(copy.deepcopy(network), 300, SHAPE)
        own, beside = (trace(copy.deepcopy(network), rows, []) for rows in ([[3] * 20], LONG))
        assert not np.array_equal(own, beside)
    network = fresh
    assert row_shapes.verify(network, 300, SHAPE)
    np.testing.assert_array_equal(trace(network, [[3] * 20], []), trace(network, LONG, []))


@pytest.mark.parametrize("architecture", ["phi3-longrope", "llama-dynamic", "gemma3-dynamic"])
def test_pinned_frequencies_are_those_of_the_model_at_that_length(architecture: str) -> None:
    """Pinned to n positions, logits are those of one sequence of n tokens that the model computes by itself."""
    for length in (20, 60):
        alone = random_network(architecture)
        sequence = [5 + token % 250 for token in range(length)]
        with torch.no_grad():
            expected = alone(input_ids=torch.tensor([sequence]), use_cache=False).logits[0, -1]
        network = random_network(architecture)
        for pinned in (70, length):  # pinning anew leaves nothing of the last time
            shape = RowShape(2, length, length + 1, pinned)
            result = FixedRows(network, [sequence], shape=shape, vocabulary_size=300).logits()[0]
        assert float((result - expected).abs().max() / expected.abs().max()) < 1e-5


def test_short_factors_are_kept_where_no_row_can_be_long() -> None:
    """With 31 positions of 32, a pinned model is the model."""
    network, plain = random_network("phi3-longrope"), random_network("phi3")
    shape = RowShape(2, 21, 31, 31)
    result, own = (FixedRows(item, [ROW[:20]], shape=shape, vocabulary_size=300).logits() for item in (network, plain))
    scaling = network.model.rotary_emb.attention_scaling
    plain.model.rotary_emb.attention_scaling = scaling
    own = FixedRows(plain, [ROW[:20]], shape=shape, vocabulary_size=300).logits()
    torch.testing.assert_close(result, own, rtol=0, atol=0)


# --- Neighbours through the whole decode loop -------------------------------------------------------------------------

RECORDS = [Record(f"id-{i}", f"key {i:03d} of the patient", "ab"[i % 2]) for i in range(12)]
NEIGHBOURS: dict[str, list[Record]] = {
    "one record removed": RECORDS[1:],
    "another record removed": RECORDS[:7] + RECORDS[8:],
    "one record added": [*RECORDS, Record("new", "key 999 of the patient", "a")],
    "a record longer than all others": [*RECORDS, Record("new", "the patient came twice 0123456789 " * 20, "b")],
    "a record shorter than all others": [*RECORDS, Record("new", "k", "a")],
    "the first record longer than all others": [Record("id-0", "the doctor said so " * 30, "a"), *RECORDS[1:]],
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], LanguageModel]:
    known: dict[tuple[str, str], LanguageModel] = {}

    def load(architecture: str, dtype: str) -> LanguageModel:
        if (architecture, dtype) not in known:
            folder = save_model(tmp_path_factory.mktemp("models"), architecture)
            known[architecture, dtype] = LanguageModel.load(folder, device="cpu", dtype=dtype)
        return known[architecture, dtype]

    return load


def seen_by_slot(model: LanguageModel, records: list[Record], runs: Any, **changes: Any) -> dict[int, list[Any]]:
    """For each slot, what was aggregated and drawn at every step. Draws are those of the slot, whatever others do."""
    chosen, watcher = mechanism(prefix="k", template="Say it again: {examples}\n", **changes), Watcher()
    run = runs.begin(chosen, noise="recorded")
    generate(chosen, records, model, run, key=KEY, observers=[watcher], source=SlotDraws(chosen.total_slots))
    results: dict[int, list[Any]] = {}
    for seen in watcher.steps:
        results.setdefault(seen["slot"], []).append((seen["clipped"].tobytes(), seen["token"], seen["log_probability"]))
    return results


class SlotDraws(Recorded):
    """Draws in rounds of one for each slot, each slot from a generator of its own."""

    def __init__(self, slots: int) -> None:
        super().__init__(0)
        self._sources = [Recorded(slot) for slot in range(slots)]
        self._next = 0

    def at(self, place: str) -> Any:
        return self

    def below(self, bound: int) -> int:
        source = self._sources[self._next % len(self._sources)]
        self._next += 1
        return source.below(bound)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("architecture", ["gpt2", "gemma2", "phi3-longrope"])
@pytest.mark.parametrize("aggregate", ["median", "mean"])
def test_a_neighbour_changes_its_own_slot_and_no_bit_of_any_other(
    aggregate: str, architecture: str, dtype: str, loaded: Any, runs: Any
) -> None:
    model = loaded(architecture, dtype)
    changes = {"aggregate": aggregate, "context_tokens": 56}
    own = seen_by_slot(model, RECORDS, runs, **changes)
    assert len(own) == 4
    for name, records in NEIGHBOURS.items():
        other = seen_by_slot(model, records, runs, **changes)
        moved = [slot for slot in own if own[slot] != other[slot]]
        assert len(moved) == 1, name


@pytest.mark.slow
def test_packed_rows_would_fail_that(loaded: Any, runs: Any) -> None:
    """The control: the same neighbours, with shapes that follow the data, move other slots, a little or a lot."""
    for architecture in ("gpt2", "phi3-longrope"):
        model = loaded(architecture, "float32")
        own = seen_by_slot(model, RECORDS, runs, rows="packed", context_tokens=56)
        moved = {
            name: [slot for slot in own if own[slot] != other[slot]]
            for name, records in NEIGHBOURS.items()
            for other in [seen_by_slot(model, records, runs, rows="packed", context_tokens=56)]
        }
        assert max(map(len, moved.values())) > 1


# --- What is public, and what is refused ------------------------------------------------------------------------------


def test_the_shape_follows_from_public_numbers(tiny: LanguageModel) -> None:
    chosen = mechanism(template="{examples}", context_tokens=30, document_tokens=5)
    plan = chosen.row_plan(tiny)
    assert plan.exact
    assert plan.shapes == dict.fromkeys("ab", RowShape(rows=16, context=30, positions=35, pinned=35))
    by_label = mechanism(template="{examples}", context_tokens=(("a", 20), ("b", 40)), document_tokens=50)
    shapes = by_label.row_plan(tiny).shapes
    assert shapes == {"a": RowShape(16, 20, 26, 46), "b": RowShape(16, 40, 46, 46)}  # six tokens a slot
    named = mechanism(template="{label}: {examples}", labels=("a", "a long name of a label"))
    shapes = named.row_plan(tiny).shapes
    assert shapes is not None
    assert len(set(shapes.values())) == 1
    unstated = mechanism(template="{examples}!").prompt(tiny, "a")
    assert unstated.longest_context == 1 + 63  # half of the positions; 64 tokens a record would not fit
    assert not mechanism(rows="packed").row_plan(tiny).exact
    assert mechanism(rows="packed").row_plan(tiny).shapes is None


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((("c", 20),), "'c', which is not among the labels"),
        ((("a", 20),), "must name every label, and b"),
        ((), "and a"),
    ],
)
def test_lengths_by_label_are_of_every_label(lengths: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mechanism(context_tokens=lengths)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context_tokens": 0}, "context_tokens must be at least 1"),
        ({"context_tokens": 126}, "the model has 128 positions, of which 64 remain"),
        ({"context_tokens": (("a", 20), ("b", 100))}, "lower context_tokens or document_tokens"),
        ({"context_tokens": 3}, "a context of 3 tokens leaves 1 for each record"),
        ({"document_tokens": 0}, "document_tokens must be at least 1"),
        ({"document_tokens": 128}, "of which 0 remain for a context"),
        ({"rows": "loose"}, "rows must be one of"),
    ],
    ids=str,
)
def test_impossible_lengths_are_refused_before_anything_is_charged(
    changes: dict[str, Any], message: str, tiny: LanguageModel
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        mechanism(template="a {examples}", **changes).check(RECORDS, tiny)
    assert "\n" not in str(error.value)


def test_a_model_with_other_modules_is_refused_before_anything_is_charged(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LanguageModel.load(tiny_folder, device="cpu")
    monkeypatch.setattr(model.network.transformer, "ln_f", torch.nn.BatchNorm1d(32))
    for rows in ("fixed", "packed"):
        with pytest.raises(ValueError, match=r"model tiny: module transformer\.ln_f is a BatchNorm1d"):
            mechanism(rows=rows).check(RECORDS, model)


def test_a_shape_is_verified_once(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = LanguageModel.load(tiny_folder, device="cpu"), list[RowShape]()
    verify = row_shapes.verify

    def counted(network: Any, vocabulary_size: int, shape: RowShape) -> bool:
        calls.append(shape)
        return verify(network, vocabulary_size, shape)

    monkeypatch.setattr(row_shapes, "verify", counted)
    for _ in range(2):
        mechanism().check(RECORDS, model)
    assert len(calls) == len(set(calls)) == 1


def _arrangements(shape: RowShape) -> Iterator[tuple[list[list[int]], Any]]:
    own = row_shapes.contexts_of(300, shape, 0)
    yield from row_shapes.arrangements_of(300, shape, own)


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_arrangements_hold_the_longest_and_the_shortest_context_beside_every_row(rows: int) -> None:
    shape = RowShape(rows, 30, 40, 40)
    beside: dict[int, set[int]] = {row: set() for row in range(rows)}
    indices: dict[int, set[int]] = {row: set() for row in range(rows)}
    for contexts, origin in _arrangements(shape):
        for index, row in enumerate(origin):
            if row >= 0:
                indices[row].add(index)
                beside[row] |= {len(context) for context, other in zip(contexts, origin, strict=True) if other < 0}
    assert all({1, 30} <= lengths for lengths in beside.values()) or rows == 1
    assert all(len(result) > 1 for result in indices.values()) or rows == 1
