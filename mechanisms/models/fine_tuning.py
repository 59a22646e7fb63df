"""Plain fine-tuning, and the log-probability of texts under a model. It protects nobody.

For those who attack (reference models), and for controls that must leak. Nothing trained here may be released.
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
from numpy.typing import NDArray

from cupel.accounting import validate
from cupel.mechanisms.models.language_model import LanguageModel

_ENTRIES = 2**25  # logits of one call of the model: 128 MiB, and as much again for gradients
_IGNORED = -100


@dataclass(frozen=True, slots=True)
class Training:
    """How a model is fine-tuned: AdamW at a constant rate, on texts in an order that is drawn anew each epoch.

    Attributes:
        epochs: how often each text is seen.
        batch_size: texts of one step.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
    """

    epochs: int = 3
    batch_size: int = 16
    learning_rate: float = 1e-3
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

    A text is cut to the model's context length. Weights are trained in float32. One call of the model gives a bounded
    number of logits, or those of one text; a batch's gradient is summed over several calls where needed.

    Args:
        model: stays as it is.
        texts: at least one.
        training: the settings.
        seed: of the order, and of dropout where the model has some: a public choice.
        progress: called with the steps done and the steps in all.

    Raises:
        ValueError: for no texts, or a loss that is no number (a lower learning rate helps).
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
    return dataclasses.replace(trained, fingerprint=_fingerprint(network))


def log_probabilities(model: LanguageModel, texts: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """How likely each text is as a whole document: between end-of-text tokens, its end included.

    A text is cut to the model's context length. Memory is bounded by calls of a fixed number of logits, or of one text.

    Args:
        model: the model.
        texts: n texts.

    Returns:
        log p in nats, and over how many tokens it is a sum (at least 1), both of shape (n,).
    """
    sums, counts = np.zeros(len(texts)), np.ones(len(texts), dtype=np.int64)
    rows = [_tokens(model, text) for text in texts]
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    with torch.inference_mode():
        for piece in _pieces(model, [rows[index] for index in order]):
            members = order[piece.start : piece.stop]
            losses, targets = _losses(model, [rows[index] for index in members])
            sums[members] = -losses.sum(dim=1).double().cpu().numpy()
            counts[members] = np.maximum(1, (targets != _IGNORED).sum(dim=1).cpu().numpy())
    return sums, counts


def save(model: LanguageModel, folder: Path | str) -> None:
    """Writes a model folder that `LanguageModel.load` reads: safetensors, configuration and tokenizer."""
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)


def _tokens(model: LanguageModel, text: str) -> list[int]:
    """A document as the model sees it: its start, the text, its end."""
    end = list(model.end_of_text_ids[:1])
    tokens = [*(list(model.beginning_ids) or end), *model.encode(text), *end]
    return tokens[: model.context_length]


def _pieces(model: LanguageModel, rows: Sequence[Sequence[int]]) -> Iterator[range]:
    """Consecutive rows whose logits, padding included, are at most `_ENTRIES`; at least one row."""
    start = longest = 0
    for index, row in enumerate(rows):
        longest = max(longest, len(row))
        if index > start and (index + 1 - start) * longest * model.vocabulary_size > _ENTRIES:
            yield range(start, index)
            start, longest = index, len(row)
    if rows:
        yield range(start, len(rows))


def _losses(model: LanguageModel, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """−log p of every token but the first, shape (rows, length − 1), 0 for padding; and the tokens or `_IGNORED`.

    Padding stands behind a row's tokens, where a causal model does not look.
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
    """One step along the gradient of the mean loss of the batch's tokens."""
    total = max(1, sum(len(row) - 1 for row in rows))
    optimizer.zero_grad()
    for piece in _pieces(model, rows):
        loss = _losses(model, rows[piece.start : piece.stop])[0].sum() / total
        if not bool(torch.isfinite(loss)):
            raise ValueError("the loss of fine-tuning is no number any more; lower the learning rate")
        loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.network.parameters(), 1.0)
    optimizer.step()


def _fingerprint(network: torch.nn.Module) -> str:
    """SHA-256 over names and values of all weights."""
    digest = hashlib.sha256()
    for name, weight in network.state_dict().items():
        digest.update(f"{name}\0".encode())
        digest.update(weight.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()
