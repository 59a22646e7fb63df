"""Training batches of the embedded model: series packed into rows, with the targets that carry loss."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from embedded_model import corpus

IGNORED = -100  # a target that carries no loss
PLAIN, COPIED, FREE = 0, 1, 2  # what a target is: itself; a digit seen before; a digit that could be any other
_CHUNK = 100  # steps made at a time

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """One step's rows.

    Attributes:
        tokens: Ids, int64 (rows, width).
        positions: Position of each token in its series plus a random offset, int64 (rows, width).
        attention: Whether a token (third axis) sees an earlier one of its series, bool (rows, 1, width, width).
        targets: The next token, or -100 where no loss is due, int64 (rows, width).
        digits: `PLAIN`, `COPIED` or `FREE` for each target, int64 (rows, width).
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    attention: torch.Tensor
    targets: torch.Tensor
    digits: torch.Tensor


@dataclass(frozen=True)
class Example:
    """One series: its tokens, the target after each, and what each target is (as in `Batch`); shapes (length,)."""

    tokens: Ints
    targets: Ints
    digits: Ints


def copy_batches(rng: np.random.Generator, digits: Ints, vocabulary: int, positions: int) -> Iterator[Batch]:
    """Series `[end] prefix X end prefix X end` with loss on the second X and its end only: pure copying.

    Args:
        rng: Source of the draws.
        digits: The digits' ids, shape (10,).
        vocabulary: Number of ids; id 0 ends a document.
        positions: Number of positions of the model.

    Yields:
        Batches of 48 rows, one series each.
    """
    while True:
        yield _pack([_random_copy(rng, digits, vocabulary, 2, only_copy=True) for _ in range(48)], 48, rng, positions)


def _random_copy(
    rng: np.random.Generator, digits: Ints, vocabulary: int, count: int, *, only_copy: bool = False
) -> Example:
    prefix = rng.integers(1, vocabulary, size=int(rng.integers(1, 7)))
    if rng.random() < 0.6:
        value = digits[rng.integers(0, 10, size=int(rng.integers(5, 11)))]
    else:
        value = rng.integers(1, vocabulary, size=int(rng.integers(3, 13)))
        if rng.random() < 0.5:  # digits and other tokens in turn
            mixed = rng.random(value.size) < 0.6
            value[mixed] = digits[rng.integers(0, 10, size=int(mixed.sum()))]
    document = np.concatenate([prefix, value, [0]])
    tokens = np.concatenate([[0], *[document] * count])
    targets = np.append(tokens[1:], IGNORED)
    targets[: document.size] = IGNORED
    if only_copy:
        targets[document.size : document.size + prefix.size] = IGNORED
    return Example(tokens, targets, np.zeros_like(targets))


def mixed_batches(rng: np.random.Generator, tokenizer: Tokenizer, digits: Ints, positions: int) -> Iterator[Batch]:
    """Series of all kinds, packed into rows of 128 or 256 tokens, 4096 tokens a batch.

    Args:
        rng: Source of the draws.
        tokenizer: Its id 0 ends a document.
        digits: The digits' ids, shape (10,).
        positions: Number of positions of the model, at least 256.

    Yields:
        Batches, without end.
    """
    while True:
        batches = []
        pools: dict[int, list[Example]] = {128: [], 256: []}
        drawn = [corpus.series(rng) for _ in range(_CHUNK * 55)]
        texts = [text for s in drawn for text in s.documents]
        encoded = iter(tokenizer.encode_batch(texts, add_special_tokens=False))
        for s in drawn:
            if s.kind == "ids":
                example = _random_copy(rng, digits, tokenizer.get_vocab_size(), int(rng.integers(2, 4)))
            else:
                example = example_of(s, [np.array(next(encoded).ids) for _ in s.documents], digits)
            pools[128 if example.tokens.size <= 128 else 256].append(example)
        for width, examples in pools.items():
            rows = _rows(examples, width)
            size = 4096 // width
            for start in range(0, len(rows) - size + 1, size):
                batches.append(_join(rows[start : start + size], width, rng, positions))
        for index in rng.permutation(len(batches)):
            yield batches[int(index)]


def example_of(series: corpus.Series, documents: list[Ints], digits: Ints) -> Example:
    """A series' tokens and targets, cut to the whole documents that fit 256 tokens.

    Of a secret's digits, those that repeat an earlier document are copied; from the first token on that is new to every
    earlier document they are free. That first token cannot be told from a copy in the second document, where it has
    no target; in the third it is no surprise.

    Args:
        series: A series of any kind but ``ids``.
        documents: The ids of its documents, without their ends.
        digits: The digits' ids, shape (10,).

    Returns:
        The series between ends, each a target but the first.
    """
    while sum(d.size + 1 for d in documents) + 1 > 256:
        documents = documents[:-1]
    documents = [np.append(d, 0) for d in documents]
    labels = [d.copy() for d in documents]
    kinds = [np.full_like(d, PLAIN) for d in documents]
    if series.kind in ("same", "different"):
        for i in range(1, len(documents)):
            is_digit = np.isin(documents[i], digits)
            is_digit &= np.cumsum(is_digit) > series.digits_before
            kinds[i][is_digit] = COPIED
            shared = max(_shared(documents[i], earlier) for earlier in documents[:i])
            if shared < documents[i].size:
                kinds[i][shared:][is_digit[shared:]] = FREE
                if i == 1 or kinds[i][shared] == PLAIN:
                    labels[i][shared] = IGNORED
    return Example(
        np.concatenate([[0], *documents]), np.concatenate([*labels, [IGNORED]]), np.concatenate([*kinds, [PLAIN]])
    )


def _shared(a: Ints, b: Ints) -> int:
    """Length of the common prefix."""
    n = min(a.size, b.size)
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if different.size else n


def _rows(examples: list[Example], width: int) -> list[list[Example]]:
    """First-fit packing among the last 32 open rows."""
    rows: list[list[Example]] = []
    room: list[int] = []
    for example in examples:
        size = example.tokens.size
        first = max(0, len(rows) - 32)
        index = next((i for i in range(first, len(rows)) if room[i] >= size), None)
        if index is None:
            rows.append([example])
            room.append(width - size)
        else:
            rows[index].append(example)
            room[index] -= size
    return rows


def _pack(examples: list[Example], width: int, rng: np.random.Generator, positions: int) -> Batch:
    return _join([[e] for e in examples], width, rng, positions)


def _join(rows: list[list[Example]], width: int, rng: np.random.Generator, positions: int) -> Batch:
    tokens = np.zeros((len(rows), width), dtype=np.int64)
    targets = np.full_like(tokens, IGNORED)
    index, digits = np.zeros_like(tokens), np.zeros_like(tokens)
    owner = np.full_like(tokens, -1)
    for i, row in enumerate(rows):
        start = 0
        for number, example in enumerate(row):
            size = example.tokens.size
            span = slice(start, start + size)
            tokens[i, span], targets[i, span], owner[i, span] = example.tokens, example.targets, number
            digits[i, span] = example.digits
            offset = int(rng.integers(0, positions - size + 1)) if rng.random() < 0.5 else 0
            index[i, span] = offset + np.arange(size)
            start += size
    seen = torch.from_numpy(owner[:, :, None] == owner[:, None, :]).tril()[:, None]
    return Batch(
        torch.from_numpy(tokens), torch.from_numpy(index), seen, torch.from_numpy(targets), torch.from_numpy(digits)
    )
