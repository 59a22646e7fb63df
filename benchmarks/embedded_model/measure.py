"""Generation for the measurement of the embedded model: one context, or the clipped median of several.

A plain decoder for benchmarks and tests of the weights. It draws from a seeded generator and accounts for nothing:
private generation has its own.
"""

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from dpassay.mechanisms.models.embedded import path

_ROWS = 504  # contexts a forward; divisible by groups of 1, 7, 9, 63


@dataclass(frozen=True)
class Decoding:
    """How the next token is drawn.

    Attributes:
        temperature: Of the softmax; 0 takes the likeliest token.
        clip: Bound c of z ↦ max(−c, z − max z + c), applied to each context's logits; None leaves them.
        group: Contexts of one document: the next token is drawn from the coordinate-wise median of their logits.
    """

    temperature: float = 1.0
    clip: float | None = None
    group: int = 1


def load(folder: pathlib.Path | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model (evaluation mode, float32) and tokenizer of a folder, by default the shipped one."""
    folder = folder or path()
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


@torch.inference_mode()
def documents(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    contexts: Sequence[Sequence[str]],
    decoding: Decoding,
    seed: int,
    *,
    prefix: str = "",
    limit: int = 72,
) -> list[str]:
    """One document for each group of consecutive contexts.

    Args:
        model: A causal language model.
        tokenizer: Its tokenizer; id 0 opens a sequence and ends a document.
        contexts: The records of each context; their number is a multiple of `decoding.group`.
        decoding: How tokens are drawn.
        seed: Seed of the draws.
        prefix: Forced beginning of every document.
        limit: Tokens after which a document is cut.

    Returns:
        The documents, prefix included; one that was cut does not end in any particular way.
    """
    size = decoding.group
    step = max(_ROWS // size, 1) * size
    generator = torch.Generator().manual_seed(seed)
    out: list[str] = []
    for start in range(0, len(contexts), step):
        encoded = [_context(tokenizer, c) + tokenizer(prefix).input_ids for c in contexts[start : start + step]]
        out += [
            prefix + tokenizer.decode(ids, clean_up_tokenization_spaces=False)
            for ids in _generate(model, encoded, decoding, generator, limit)
        ]
    return out


def _context(tokenizer: PreTrainedTokenizerBase, records: Sequence[str]) -> list[int]:
    return [0] + [i for record in records for i in [*tokenizer(record).input_ids, 0]]


def _generate(
    model: PreTrainedModel, contexts: list[list[int]], decoding: Decoding, generator: torch.Generator, limit: int
) -> list[list[int]]:
    """Token ids, without the final end, of one document a group; contexts are padded on the left."""
    width = max(map(len, contexts))
    tokens = torch.tensor([[0] * (width - len(c)) + c for c in contexts])
    lengths = torch.tensor([len(c) for c in contexts])
    mask = (torch.arange(width) >= width - lengths[:, None]).long()
    positions = (torch.arange(width) - (width - lengths[:, None])).clamp(min=0)
    cache = None
    drawn: list[torch.Tensor] = []
    ended = torch.zeros(len(contexts) // decoding.group, dtype=torch.bool)
    for _ in range(limit):
        output = model(
            input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        cache = output.past_key_values
        token = _draw(output.logits[:, -1].float(), decoding, generator)
        drawn.append(token)
        ended |= token == 0
        if bool(ended.all()):
            break
        tokens = token.repeat_interleave(decoding.group)[:, None]
        mask = torch.cat([mask, torch.ones_like(tokens)], 1)
        positions = positions[:, -1:] + 1
    rows = torch.stack(drawn, 1).numpy()
    return [row[: int(np.argmax(row == 0))].tolist() if (row == 0).any() else row.tolist() for row in rows]


def _draw(logits: torch.Tensor, decoding: Decoding, generator: torch.Generator) -> torch.Tensor:
    """Next token of each group from logits of shape (groups · group, vocabulary); shape (groups,)."""
    if decoding.clip is not None:
        peak = logits.max(dim=1, keepdim=True).values
        logits = (logits - peak + decoding.clip).clamp(min=-decoding.clip)
    grouped = logits.view(-1, decoding.group, logits.shape[1])
    median = grouped.median(dim=1).values  # the lower one where the group is even
    if decoding.group % 2 == 0:
        median = (median - (-grouped).median(dim=1).values) / 2
    if decoding.temperature == 0:
        return median.argmax(dim=1)
    probabilities = (median / decoding.temperature).softmax(dim=1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]
