"""Fine-tuning without privacy, and the log-probability of texts under a model.

For attacks (reference models), and for controls that must leak. Models trained here must not be released.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dpassay.base import defaults, validate
from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.models.language_model import LanguageModel

ENTRIES = 2**25  # logits of one call of the model: 128 MiB, and as much for gradients
_IGNORED = -100


@dataclass(frozen=True, slots=True)
class Training:
    """The settings of fine-tuning: AdamW with a constant learning rate, on texts shuffled in each epoch."""

    epochs: int = defaults.EPOCHS
    batch_size: int = defaults.BATCH_SIZE
    learning_rate: float = defaults.LEARNING_RATE
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        validate.integer(minimum=1, epochs=self.epochs)
        validate.integer(minimum=1, batch_size=self.batch_size)
        validate.positive(learning_rate=self.learning_rate)
        validate.non_negative(weight_decay=self.weight_decay)


def fine_tune(
    model: LanguageModel,
    texts: Sequence[str],
    training: Training,
    *,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> LanguageModel:
    """A copy of the model, trained further on texts, each between end-of-text tokens.

    Texts are truncated to the model's context length. Weights are trained in float32. One call of the model computes a
    bounded number of logits, or those of one text; a batch's gradient is summed over several calls if necessary. The
    public seed is of the order, and of dropout if the model has it.

    Raises:
        ValueError: if there is no text, or the loss is not finite (use a lower learning rate).
    """
    if not texts:
        raise ValueError("fine-tuning needs at least one text")
    network = copy.deepcopy(model.network).float()
    trained = dataclasses.replace(model, network=network, name=f"{model.name} (fine-tuned)")
    rows = [_tokens(model, text) for text in texts]
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay, foreach=False
    )
    rng = np.random.default_rng(seed)
    steps = -(-len(rows) // training.batch_size)
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        network.train()
        for epoch in range(training.epochs):
            order = rng.permutation(len(rows))
            for step in range(steps):
                chosen = order[step * training.batch_size : (step + 1) * training.batch_size]
                _step(trained, [rows[index] for index in chosen], optimizer)
                if progress is not None:
                    progress(epoch * steps + step + 1, training.epochs * steps)
    network.eval()
    return dataclasses.replace(trained, fingerprint=fingerprint(network))


def log_probabilities(
    model: LanguageModel, texts: Sequence[str], starts: Sequence[int] | None = None
) -> tuple[Floats, Integers]:
    """The log-probability of each of n texts as a document, between end-of-text tokens, its end included, in nats, and
    the number of tokens that it is summed over (at least 1), both of shape (n,).

    Texts are truncated to the model's context length. A call computes a bounded number of logits, or those of one text.
    With `starts`, tokens count from this character of each text, given what is before: from the first token that is not
    also one of the text up to there.
    """
    sums, counts = np.zeros(len(texts)), np.ones(len(texts), dtype=np.int64)
    rows = [_tokens(model, text) for text in texts]
    firsts = [0] * len(texts) if starts is None else _first_tokens(model, texts, starts, rows)
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    with torch.inference_mode():
        for piece in _pieces(model, [rows[index] for index in order]):
            members = order[piece.start : piece.stop]
            losses, targets = _losses(model, [rows[index] for index in members])
            for position, index in enumerate(members):
                losses[position, : firsts[index]] = 0
                targets[position, : firsts[index]] = _IGNORED
            sums[members] = -losses.sum(dim=1).double().cpu().numpy()
            counts[members] = np.maximum(1, (targets != _IGNORED).sum(dim=1).cpu().numpy())
    return sums, counts


def _first_tokens(
    model: LanguageModel, texts: Sequence[str], starts: Sequence[int], rows: Sequence[Sequence[int]]
) -> list[int]:
    """How many losses of each row belong to the tokens before a text's start."""
    firsts = []
    for text, start, row in zip(texts, starts, rows, strict=True):
        before = _tokens(model, text[:start])[: -len(model.end_of_text_ids[:1]) or None]
        shared = next((index for index, pair in enumerate(zip(before, row)) if pair[0] != pair[1]), len(before))  # noqa: B905
        firsts.append(max(0, shared - 1))
    return firsts


def save(model: LanguageModel, folder: Path | str) -> None:
    """Writes a model folder for `LanguageModel.load`: safetensors, configuration and tokenizer."""
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)


def _tokens(model: LanguageModel, text: str) -> list[int]:
    """The tokens of a document: its start, the text, its end."""
    end = list(model.end_of_text_ids[:1])
    tokens = [*(list(model.beginning_ids) or end), *model.encode(text), *end]
    return tokens[: model.context_length]


def _pieces(model: LanguageModel, rows: Sequence[Sequence[int]]) -> Iterator[range]:
    """Ranges of consecutive rows with at most `ENTRIES` logits, padding included, and at least one row."""
    start = longest = 0
    for index, row in enumerate(rows):
        longest = max(longest, len(row))
        if index > start and (index + 1 - start) * longest * model.vocabulary_size > ENTRIES:
            yield range(start, index)
            start, longest = index, len(row)
    if rows:
        yield range(start, len(rows))


def _losses(model: LanguageModel, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """−log p of every token except the first, shape (rows, length − 1), 0 for padding; and the tokens or `_IGNORED`.

    Padding follows a row's tokens, where a causal model does not attend to it.
    """
    width = max(2, *(len(row) for row in rows)) if len(rows) > 1 else max(2, len(rows[0]))
    tokens = torch.zeros(len(rows), width, dtype=torch.long)
    targets = torch.full((len(rows), width), _IGNORED, dtype=torch.long)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = targets[index, : len(row)] = torch.tensor(row, dtype=torch.long)
    targets = targets[:, 1:].to(model.device)
    logits = model.network(input_ids=tokens[:, :-1].to(model.device), use_cache=False).logits
    logits = logits[..., : model.vocabulary_size].float()
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=_IGNORED, reduction="none")
    return losses, targets


def _step(model: LanguageModel, rows: Sequence[Sequence[int]], optimizer: torch.optim.Optimizer) -> None:
    """One optimisation step on the mean loss of the batch's tokens."""
    total = max(1, sum(len(row) - 1 for row in rows))
    optimizer.zero_grad()
    for piece in _pieces(model, rows):
        loss = _losses(model, rows[piece.start : piece.stop])[0].sum() / total
        if not bool(torch.isfinite(loss)):
            raise ValueError("the loss of fine-tuning is not finite; lower the learning rate")
        loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.network.parameters(), 1.0)
    optimizer.step()


def fingerprint(network: torch.nn.Module) -> str:
    """SHA-256 over names and values of all weights."""
    digest = hashlib.sha256()
    for name, weight in network.state_dict().items():
        digest.update(f"{name}\0".encode())
        digest.update(weight.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()
