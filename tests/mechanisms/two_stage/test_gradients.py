"""Gradients of single rows: against automatic differentiation of each row alone, and against other rows beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import save_model

from dpassay.base.arrays import Floats
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.two_stage import network
from dpassay.mechanisms.two_stage.gradients import RowGradients, WeightedRow
from dpassay.mechanisms.two_stage.training import coupled

WIDTH = 24
ARCHITECTURES = ("gpt2", "llama", "gemma2", "qwen2", "olmo", "mistral")
VOCABULARY = 300


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Path] = {}

    def folder(architecture: str) -> Path:
        if architecture not in made:
            made[architecture] = tmp_path_factory.mktemp(architecture)
            save_model(made[architecture], architecture)
        return made[architecture]

    return folder


def random_rows(count: int, seed: int = 0) -> list[WeightedRow]:
    """Rows of different lengths, from 2 tokens to the width, with weights of their own."""
    rng = np.random.default_rng(seed)
    lengths = np.linspace(2, WIDTH, count).round().astype(int)
    return [
        WeightedRow(rng.integers(VOCABULARY, size=length).tolist(), rng.uniform(0.2, 1, length - 1).tolist())
        for length in lengths
    ]


@contextmanager
def gradients(folder: Path, *, rank: int = 0, precision: str = "float32") -> Iterator[RowGradients]:
    model = LanguageModel.load(folder)
    trained = network.trainable(model, rank)
    made = RowGradients(trained.network, model.vocabulary_size, WIDTH, precision)
    try:
        yield made
    finally:
        made.close()


def moved(trained: Any) -> Any:
    """The network with LoRA matrices that are not 0: at 0, all gradients of their partners are 0, right or wrong."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, weight in sorted(trained.named_parameters()):
            if "lora_B" in name:
                weight.copy_(0.1 * torch.randn(weight.shape))
    return trained


def by_hand(folder: Path, rows: list[WeightedRow], rank: int) -> Floats:
    """Each row's gradient by `torch.autograd.grad` on a network that Opacus never saw, without padding."""
    trained = moved(network.trainable(LanguageModel.load(folder), rank).network)
    weights = [weight for _, weight in sorted(trained.named_parameters()) if weight.requires_grad]
    results = []
    for row in rows:
        ids = torch.tensor([list(row.tokens)])
        logits = trained(input_ids=ids, use_cache=False).logits[0, :-1, :VOCABULARY].double()
        log_p = torch.log_softmax(logits, dim=1)[torch.arange(len(row.tokens) - 1), ids[0, 1:]]
        loss = -(log_p * torch.tensor(list(row.weights))).sum() / WIDTH
        pieces = torch.autograd.grad(loss, weights)
        results.append(torch.cat([piece.reshape(-1).double() for piece in pieces]).numpy())
    return np.array(results)


def of(made: RowGradients, rows: list[WeightedRow]) -> Floats:
    return np.concatenate([piece.astype(np.float64) for piece in made.of(rows)])


@pytest.mark.grid
@pytest.mark.parametrize(
    ("architecture", "rank"),
    [(item, rank) for item in ARCHITECTURES for rank in (0, 2) if (item, rank) != ("gemma2", 0)],
)
def test_gradients_are_those_of_each_row_alone(folders: Any, architecture: str, rank: int) -> None:
    """To 1e-5 of a gradient's length; float32 gives about 1e-7 of each sum of some thousand terms."""
    rows = random_rows(5)
    with gradients(folders(architecture), rank=rank) as made:
        moved(made.network)
        made.rows = 2
        result = of(made, rows)
        assert made.size == result.shape[1]
        assert (result != 0).mean() > 0.3
    exact = by_hand(folders(architecture), rows, rank)
    lengths = np.linalg.norm(exact, axis=1)
    assert (np.linalg.norm(result - exact, axis=1) <= 1e-5 * lengths).all()
    assert lengths.min() > 0


@pytest.mark.grid
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_row_has_the_same_bits_whatever_stands_beside_it(folders: Any, architecture: str, precision: str) -> None:
    """At a shape that was verified, with rows that the check did not see, in mixed precision, too."""
    rows, others = random_rows(4), random_rows(4, 1)
    with gradients(folders(architecture), precision=precision) as made:
        assert made.find(4)
        assert made.rows >= 2
        made.rows = 4 if made.rows > 4 else made.rows
        plain = [row.tobytes() for row in of(made, rows)]
        assert [row.tobytes() for row in of(made, rows[::-1])][::-1] == plain
        for index, row in enumerate(rows):
            exchanged = [*others[:index], row, *others[index + 1 :]]
            assert of(made, exchanged)[index].tobytes() == plain[index]
            assert of(made, [row])[0].tobytes() == plain[index]


def test_the_published_loss_couples_rows_and_ours_does_not(folders: Any) -> None:
    """One row of four is exchanged for a longer one: with the loss of the batch, the gradients of the others move."""
    rows = random_rows(4)
    for row in rows:
        row.weights[:] = [0.65 if token % 2 else 0.35 for token in row.tokens[1:]]  # type: ignore[index]
    longer = WeightedRow(rows[3].tokens, rows[3].weights)
    exchanged = [longer, *rows[1:]]
    with gradients(folders("gpt2")) as made:
        made.rows = 4
        sound = of(made, rows)[1:] - of(made, exchanged)[1:]
        published = of(made, coupled(rows, WIDTH))[1:] - of(made, coupled(exchanged, WIDTH))[1:]
        assert not sound.any()
        assert np.linalg.norm(published, axis=1).min() > 0.05 * np.linalg.norm(of(made, rows)[1:], axis=1).max()


def test_a_parameter_without_gradients_of_single_rows_is_refused(folders: Any) -> None:
    """Opacus finds none for embeddings under LoRA, without a word."""
    from peft import LoraConfig, get_peft_model

    model = LanguageModel.load(folders("gpt2"))
    trained = network.trainable(model, 0).network
    config = LoraConfig(r=2, target_modules=["wte"], lora_dropout=0.0)
    with pytest.raises(ValueError, match=r"no gradient of single rows for parameter \S+lora_embedding"):
        RowGradients(get_peft_model(trained, config), model.vocabulary_size, WIDTH)


def test_a_layer_with_buffers_needs_lora(folders: Any) -> None:
    with pytest.raises(ValueError, match="train it with lora_rank"), gradients(folders("gemma2")):
        pass


def test_a_wrong_gradient_is_refused(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from opacus.grad_sample import GradSampleHooks

    original = GradSampleHooks.GRAD_SAMPLERS[torch.nn.LayerNorm]

    def doubled(*given: Any) -> Any:
        return {weight: 2 * result for weight, result in original(*given).items()}

    monkeypatch.setitem(GradSampleHooks.GRAD_SAMPLERS, torch.nn.LayerNorm, doubled)
    with pytest.raises(ValueError, match="per-example gradients of this model are wrong"), gradients(folders("gpt2")):
        pass


@pytest.mark.parametrize("rank", [2])
def test_a_wrong_gradient_of_one_matrix_of_a_lora_pair_is_refused(
    folders: Any, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """Before the first step its partner is 0, and so would be the wrong gradient; checks move it meanwhile."""
    from opacus.grad_sample import GradSampleHooks

    original = GradSampleHooks.GRAD_SAMPLERS[torch.nn.Linear]

    def coupled(layer: Any, *given: Any) -> Any:
        results = original(layer, *given)
        if layer.out_features == rank:  # the first of a pair
            results = {weight: item + item.sum(dim=0, keepdim=True) for weight, item in results.items()}
        return results

    monkeypatch.setitem(GradSampleHooks.GRAD_SAMPLERS, torch.nn.Linear, coupled)
    with (
        pytest.raises(ValueError, match="per-example gradients of this model are wrong"),
        gradients(folders("llama"), rank=rank),
    ):
        pass
    monkeypatch.undo()
    with gradients(folders("llama"), rank=rank) as made:
        assert made.find(4)
        for name, weight in made.network.named_parameters():
            assert weight.any() != ("lora_B" in name), "checks put back what they moved"


def test_rows_that_see_each_other_are_not_exact(folders: Any) -> None:
    """A network that adds the mean of all rows: no shape with two rows passes, and a single row does."""
    model = LanguageModel.load(folders("gpt2"))
    trained = network.trainable(model, 0).network
    trained.transformer.h[1].register_forward_hook(
        lambda module, given, out: out + 1e-3 * out.mean(dim=0, keepdim=True)
    )
    made = RowGradients.__new__(RowGradients)
    with pytest.raises(ValueError, match="per-example gradients of this model are wrong"):
        made.__init__(trained, model.vocabulary_size, WIDTH)  # type: ignore[misc]
    made.rows = 4
    rows = random_rows(4)
    plain, exchanged = of(made, rows), of(made, [*rows[:3], rows[0]])
    assert (plain[0] != exchanged[0]).any()
    assert made.find(4)
    assert made.rows == 1


def test_dropout_is_off(folders: Any) -> None:
    model = LanguageModel.load(folders("gpt2"))
    for module in model.network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    trained = network.trainable(model, 0).network
    rows = random_rows(3)
    made = RowGradients(trained, model.vocabulary_size, WIDTH)
    made.rows = 3
    assert (of(made, rows) == of(made, rows)).all()


def test_lora_is_merged_after_training(folders: Any) -> None:
    """The finished model is of the plain architecture, and computes what the trained one did."""
    model = LanguageModel.load(folders("llama"))
    trained = network.trainable(model, 2)
    with torch.no_grad():
        for name, weight in trained.network.named_parameters():
            if "lora_B" in name:
                weight.add_(0.1)
    ids = torch.arange(8)[None]
    before = trained.network.eval()(input_ids=ids).logits
    finished = network.finished(trained)
    assert type(finished.network).__name__ == type(model.network).__name__
    assert torch.allclose(finished.network(input_ids=ids).logits, before, atol=1e-4)
    assert not torch.allclose(model.network(input_ids=ids).logits, before, atol=1e-4)
    assert finished.fingerprint != model.fingerprint
