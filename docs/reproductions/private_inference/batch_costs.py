"""What the batches of a median run cost, in numbers that are small enough to keep, and how they are summed up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from grammar import in_grammar
from numpy.typing import NDArray
from runs import Results, Written

from dpassay.attacks.private_inference.leave_one_out import LeaveOneOut
from dpassay.mechanisms.private_inference.transcripts import Generation

QUARTERS = 4
"""Into which a document is divided."""


def batches_of(written: Written, watcher: LeaveOneOut) -> dict[str, list[Any]]:
    """Column → one value for each batch that ran."""
    generation, losses, errors = written.generation, watcher.by_slot(), watcher.errors_by_slot()
    ran = np.flatnonzero(generation.transcript.running)
    assert generation.spent is not None
    exact, published = generation.spent[ran, :2].max(axis=1), generation.spent[ran, 2]
    sums, counts = quarters(written)
    columns: dict[str, list[Any]] = {
        "label": [written.mechanism.label_of(int(slot)) for slot in ran],
        "size": generation.slot_sizes[ran].tolist(),
        "epsilon": _rounded(exact),
        "published": _rounded(published),
        "loss": _rounded([losses.get(slot, 0.0) for slot in ran.tolist()]),
        "violated": [
            bool(losses.get(slot, 0.0) - errors.get(slot, 0.0) > cost)
            for slot, cost in zip(ran.tolist(), exact, strict=True)
        ],
    }
    for quarter in range(QUARTERS):
        columns[f"quarter {quarter + 1}"] = _rounded(sums[ran, quarter])
        columns[f"tokens in quarter {quarter + 1}"] = counts[ran, quarter].tolist()
    return columns


def quarters(written: Written) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Σ γ* and number of the tokens in each quarter of complete documents, each of shape (batches, 4).

    Token t of a document of length L is in quarter ⌊4t/L⌋; documents of fewer than 4 tokens are left out.
    """
    exact = exact_costs(written.generation)
    sums = np.zeros((len(exact), QUARTERS))
    counts = np.zeros((len(exact), QUARTERS), dtype=np.int64)
    start, slot = 0, -1
    for document in written.generation.documents:
        if document.slot != slot:
            start, slot = 0, document.slot
        length = len(document.tokens)
        if document.complete and length >= QUARTERS:
            place = np.arange(length) * QUARTERS // length
            sums[slot] += np.bincount(place, exact[slot, start : start + length], QUARTERS)
            counts[slot] += np.bincount(place, minlength=QUARTERS)
        start += length
    return sums, counts


def positions_of(written: Written) -> dict[str, list[Any]]:
    """Place in the document → number of tokens there and their mean γ* and γ."""
    sampled = written.generation.positions >= 0
    exact, at = exact_costs(written.generation)[sampled], written.generation.positions[sampled]
    assert written.generation.token_costs is not None
    published = written.generation.token_costs[sampled, 2]
    counts = np.bincount(at)
    return {
        "count": counts.tolist(),
        "mean": _rounded(np.bincount(at, exact) / counts),
        "mean_published": _rounded(np.bincount(at, published) / counts),
    }


def exact_costs(generation: Generation) -> NDArray[np.float64]:
    """Shape (batches, tokens): γ* = max(u⁻, u⁺) of every token."""
    assert generation.token_costs is not None
    return np.asarray(generation.token_costs[..., :2].max(axis=-1))


def outside_grammar(generation: Generation) -> dict[str, float]:
    """How much of Σγ* goes to documents that no topic's grammar derives.

    Returns:
        The share of complete documents that are ``outside`` the grammar, their share of the cost of complete documents
        (``cost_outside``), and the share of its costliest document in the cost of the costliest batch (``costliest``).
    """
    exact = exact_costs(generation)
    inside, costs, batches = [], [], []
    for slot, documents in itertools.groupby(generation.documents, key=lambda document: document.slot):
        start = 0
        for document in documents:
            end = start + len(document.tokens)
            if document.complete:
                inside.append(in_grammar(document.text))
                costs.append(exact[slot, start:end].sum())
                batches.append(slot)
            start = end
    spent, out = np.array(costs), ~np.array(inside)
    worst = np.nansum(exact, axis=1).argmax()
    return {
        "outside": float(out.mean()),
        "cost_outside": float(spent[out].sum() / spent.sum()),
        "costliest": float(spent[np.array(batches) == worst].max(initial=0.0) / exact[worst].sum()),
    }


def pooled(results: Results, setting: str, name: str) -> NDArray[Any]:
    """A column of all batches of a setting, seed after seed."""
    return np.concatenate([np.array(batches[name]) for batches in results.of(setting, "batches")])


def bootstrap(statistic: Callable[[NDArray[np.int64]], float], batches: int) -> dict[str, Any]:
    """A statistic of all batches with its 95 % percentile interval over 2000 resamples of the batches.

    Args:
        statistic: of the indices of batches.
        batches: how many there are; batches of one seed count as independent.
    """
    rng = np.random.default_rng(0)
    values = [statistic(rng.integers(batches, size=batches)) for _ in range(2000)]
    low, high = np.quantile(values, (0.025, 0.975))
    return {"value": float(statistic(np.arange(batches))), "interval": [float(low), float(high)]}


def _rounded(values: Sequence[float] | NDArray[np.float64]) -> list[float]:
    """Six significant digits: more would only make the file larger."""
    return [float(f"{value:.6g}") for value in values]
