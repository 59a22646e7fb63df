"""Generators that avoid what is private, whose noise has a bounded support, or that keep an order, and one that is
right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dpassay.accounting import PureDP
from dpassay.auditing.many_runs.run import audit_function

Rows = Sequence[dict[str, Any]]
DOMAINS = {"city": ("Oslo", "Delft", "Graz", "Lyon"), "plan": ("basic", "plus", "pro"), "team": ("a", "b", "c")}
PEOPLE = [
    {
        name: domain[(place * place + 3 * index + place // 7) % len(domain)]
        for index, (name, domain) in enumerate(DOMAINS.items())
    }
    for place in range(60)
]


def counts(rows: Rows, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([sum(row[name] == value for row in rows) for value in DOMAINS[name]])


def columns(rows: Rows, seed: int) -> list[dict[str, Any]]:
    """Columns drawn on their own, from counts with Laplace noise: ε = 3/6 in all. Empty cells are not counted."""
    rng, made = np.random.default_rng(seed), {}
    for name, domain in DOMAINS.items():
        noisy = np.maximum(counts(rows, name) + rng.laplace(scale=6.0, size=len(domain)), 0.01)
        made[name] = rng.choice(domain, 80, p=noisy / noisy.sum())
    return [{name: str(cells[place]) for name, cells in made.items()} for place in range(80)]


def without(*names: str) -> Callable[[Rows, int], list[dict[str, Any]]]:
    """The same without rows that equal a record in some columns."""

    def generate(rows: Rows, seed: int) -> list[dict[str, Any]]:
        private = {tuple(row[name] for name in names) for row in rows}
        kept = [row for row in columns(rows, seed) if tuple(row[name] for name in names) not in private]
        return [kept[place % len(kept)] for place in range(40)] if kept else []

    return generate


def bounded(rows: Rows, seed: int) -> list[dict[str, Any]]:
    """Counts with noise that is uniform on −2, …, 2."""
    rng = np.random.default_rng(seed)
    made = {
        name: np.repeat(domain, np.maximum(counts(rows, name) + rng.integers(-2, 3, len(domain)), 0))
        for name, domain in DOMAINS.items()
    }
    most = max(map(len, made.values()))
    return [
        {name: str(cells[place]) if place < len(cells) else None for name, cells in made.items()}
        for place in range(most)
    ]


def ranked(rows: Rows, seed: int) -> list[dict[str, Any]]:
    """Rows of columns that are drawn on their own, cities in the order of their exact counts."""
    order = list(np.argsort(-counts(rows, "city"), kind="stable"))
    place = {DOMAINS["city"][index]: rank for rank, index in enumerate(order)}
    return sorted(columns(rows, seed), key=lambda row: place[row["city"]])


def refuted(generate: Callable[[Rows, int], list[dict[str, Any]]], pair: str | None, seed: int = 1) -> bool:
    result = audit_function(
        generate, PEOPLE, claim=PureDP(1.0), runs=250, seed=seed, neighbors=None if pair is None else [pair]
    )
    return bool(result.details["refuted"])


@pytest.mark.parametrize(
    ("generate", "pair"),
    [
        (without("city", "plan", "team"), "absent_row"),
        (without("city", "team"), "absent_pair"),
        (bounded, "outlier"),
        (ranked, "tie"),
    ],
    ids=["row", "pair", "bounded", "order"],
)
def test_what_is_absent_is_seen(generate: Callable[[Rows, int], list[dict[str, Any]]], pair: str) -> None:
    assert refuted(generate, pair)


@pytest.mark.parametrize("pair", ["absent_row", "absent_pair", "outlier", "tie"])
def test_a_generator_that_is_right_is_not_refuted(pair: str) -> None:
    """ε = 1/2, so a refutation has probability far below 0.05; the seed is fixed."""
    assert not refuted(columns, pair)
