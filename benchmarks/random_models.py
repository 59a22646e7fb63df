"""Language models with random weights in the shapes of real ones, whose texts are numbers of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers

from dpassay.data.records import Record
from dpassay.mechanisms.models.language_model import LanguageModel

SPREAD = 8.0
"""Standard deviation of the logits, about that of a trained model: near-uniform ones would sort and clip too easily."""


class Numbers:
    """A tokenizer: a text is its tokens' numbers with blanks between them."""

    def encode(self, text: str, **options: Any) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, tokens: Sequence[int], **options: Any) -> str:
        return "".join(f" {token}" for token in tokens)


def shape(name: str) -> Any:
    """The configuration of a known shape."""
    match name:
        case "GPT-2 small":
            return transformers.GPT2Config()
        case "Gemma 2 2B":
            return transformers.Gemma2Config()
        case "tiny":
            return transformers.GPT2Config(vocab_size=300, n_positions=128, n_embd=32, n_layer=1, n_head=4)
    raise ValueError(name)


def random_model(name: str, device: str = "cpu", dtype: torch.dtype = torch.float32) -> LanguageModel:
    """A model of a known shape, weights normal with standard deviation .02, embeddings scaled to `SPREAD`."""
    config = shape(name)
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype)
    network = network.to_empty(device=device).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(0, 0.02) if weight.dim() > 1 else weight.fill_(1)
        network.get_output_embeddings().weight.normal_(0, SPREAD / config.hidden_size**0.5)
        for module in network.modules():  # buffers that are computed, not loaded
            if hasattr(module, "inv_freq"):
                width = 2 * module.inv_freq.numel()
                module.inv_freq.copy_(10000.0 ** -(torch.arange(0, width, 2, device=device) / width))
    return LanguageModel(
        name=name,
        fingerprint=name,
        vocabulary_size=config.vocab_size,
        end_of_text_ids=(config.vocab_size - 1,),
        beginning_ids=(),
        context_length=config.max_position_embeddings,
        is_builtin=True,
        network=network,
        tokenizer=Numbers(),
    )


def random_records(count: int, tokens: int, vocabulary: int, shared: int = 0) -> list[Record]:
    """Records of so many random tokens, the first `shared` of them the same in all."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(vocabulary - 1, size=(count, tokens))
    drawn[:, :shared] = drawn[:1, :shared]
    return [Record(f"id-{index}", " ".join(map(str, row))) for index, row in enumerate(drawn.tolist())]
