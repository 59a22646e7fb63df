"""Small language models: random weights in the shapes of `transformers`, and one whose logits are a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import settings
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from cupel.accounting.ledger import Ledger, Run
from cupel.mechanisms.language_model import LanguageModel
from cupel.mechanisms.private_inference import PrivateInference

TEXTS = [
    "My 5-digit key is 04821",
    "the doctor said that the patient came twice",
    "0123456789 abcdefghijklmnopqrstuvwxyz",
]
torch.set_num_threads(1)  # many tests, small tensors
settings.register_profile("mechanisms", deadline=None)  # times vary with what else the machine does
settings.load_profile("mechanisms")

END = "<|end|>"


def byte_tokenizer(**special: str) -> Any:
    """A byte-level BPE tokenizer of 300 tokens, token 0 is the end of text; no pad token unless one is named."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[END, *special.values()],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, **special)


COMMON = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "eos_token_id": 0,
    "bos_token_id": None,
    "pad_token_id": None,
}


def config(architecture: str, vocabulary: int) -> Any:
    """A tiny configuration; windows of 6 so that sliding attention forgets within the tests' sequences."""
    own = {**COMMON, "vocab_size": vocabulary}
    mixed = ["sliding_attention", "full_attention", "sliding_attention"]
    match architecture:
        case "gpt2":
            return transformers.GPT2Config(
                vocab_size=vocabulary, n_positions=128, n_embd=32, n_layer=3, n_head=4, eos_token_id=0, bos_token_id=0
            )
        case "llama":
            return transformers.LlamaConfig(**own)
        case "gemma2":
            return transformers.Gemma2Config(
                **own, sliding_window=6, layer_types=mixed, query_pre_attn_scalar=8, attn_logit_softcapping=2.0
            )
        case "gemma3":
            return transformers.Gemma3TextConfig(**own, sliding_window=6, layer_types=mixed, query_pre_attn_scalar=8)
        case "qwen2":
            return transformers.Qwen2Config(
                **own, use_sliding_window=True, sliding_window=6, max_window_layers=1, layer_types=mixed
            )
        case "qwen3":
            return transformers.Qwen3Config(**own)
        case "mistral":
            return transformers.MistralConfig(**own, sliding_window=6)
    raise ValueError(architecture)


ARCHITECTURES = ("gpt2", "llama", "gemma2", "gemma3", "qwen2", "qwen3", "mistral")


def save_model(folder: Path, architecture: str = "gpt2", *, scale: float = 8.0, **special: str) -> Path:
    """Writes a model with random weights; `scale` sharpens its predictions, which are near uniform at first."""
    tokenizer = byte_tokenizer(**special)
    torch.manual_seed(0)
    network = transformers.AutoModelForCausalLM.from_config(config(architecture, len(tokenizer)))
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() > 1:
                weight *= scale
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> LanguageModel:
    return LanguageModel.load(tiny_folder, device="cpu")


@pytest.fixture(scope="session", params=ARCHITECTURES)
def any_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return LanguageModel.load(
        save_model(tmp_path_factory.mktemp("models") / request.param, request.param), device="cpu"
    )


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Path]:
    return save_model


class TableSession:
    """Rows whose logits are looked up by context and continuation."""

    def __init__(self, model: TableModel, contexts: Sequence[Sequence[int]]) -> None:
        self._model = model
        self._contexts = [tuple(context) for context in contexts]
        self._tails: list[tuple[int, ...]] = [()] * len(contexts)

    def logits(self) -> torch.Tensor:
        rows = [self._model.row(c, t) for c, t in zip(self._contexts, self._tails, strict=True)]
        return torch.from_numpy(np.array(rows, dtype=np.float32))

    def append(self, tokens: torch.Tensor) -> None:
        self._tails = [(*tail, int(token)) for tail, token in zip(self._tails, tokens, strict=True)]

    def reset(self, rows: torch.Tensor) -> None:
        self._tails = [() if gone else tail for tail, gone in zip(self._tails, rows.tolist(), strict=True)]

    def forced(self, tokens: torch.Tensor) -> torch.Tensor:
        steps = []
        for column in tokens.T:
            steps.append(self.logits())
            self.append(column)
        return torch.stack(steps, dim=1)


class TableModel:
    """A language model of V tokens, 0 the end of text, with random logits for every context and continuation.

    A text is a string of digits 1 to V − 1, one token each. `longest` is the largest length of a document.
    """

    name = "table"
    fingerprint = "table"
    end_of_text_ids = (0,)
    beginning_ids = ()
    is_builtin = True
    row_difference = 0.0
    bytes_per_position = 1024

    def __init__(self, vocabulary: int = 4, longest: int = 16, spread: float = 6.0, seed: int = 0) -> None:
        self.vocabulary_size = vocabulary
        self.context_length = 2 * longest
        self._spread = spread
        self._seed = seed
        self._rows: dict[tuple[int, ...], NDArray[np.float64]] = {}

    def row(self, context: tuple[int, ...], tail: tuple[int, ...]) -> NDArray[np.float64]:
        key = (self._seed, len(context), *context, *tail)
        if key not in self._rows:
            self._rows[key] = np.random.default_rng(key).normal(size=self.vocabulary_size) * self._spread
        return self._rows[key]

    def encode(self, text: str) -> list[int]:
        return [int(digit) for digit in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(str, tokens))

    def session(self, contexts: Sequence[Sequence[int]]) -> TableSession:
        return TableSession(self, contexts)


@pytest.fixture(scope="session")
def table_model() -> type[TableModel]:
    return TableModel


class Runs:
    """Ledgers in a folder, one a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def begin(self, mechanism: PrivateInference, *, noise: str = "os", name: str | None = None) -> Run:
        self._count += 1
        ledger = Ledger.open(self._folder / f"{name or self._count}.sqlite")
        return ledger.begin(
            "run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={"noise": noise}
        )


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)
