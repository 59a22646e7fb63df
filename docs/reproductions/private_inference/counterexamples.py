"""Minimal data sets on which published costs are too small, computed: what is reported, and what is lost in truth.

Used by `sound_against_published.py`. The clip and temperature are the paper's: 6 (median) or 9 (mean), and 1.5.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from dpassay.accounting import ApproxDP, ex_post, upper_bounds
from dpassay.accounting.adjacency import Unit
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, compose
from dpassay.data.batching import cut_slots, keyed_hash, label_cells
from dpassay.data.records import Record

CLIP, MEAN_CLIP, TEMPERATURE = 6.0, 9.0, 1.5
FIRST, SECOND = (CLIP, -CLIP), (-CLIP, CLIP)
"""Clipped logits of a record that is sure of the first or of the second of two tokens."""
_KEY = bytes(32)


def shifted_pieces(batch_size: int = 64, batches: int = 20) -> dict[str, Any]:
    """Pieces of a fixed size: one record at the front turns every sure median into a tie.

    Batches of [B³¹A³³] and [A³¹B³³] take turns (A and B the two kinds of records). Their middle values are equal, so
    Σγ is 0 for the sure token of each. With one more B in front, each piece hands its last record on and has as many of
    each kind. Records are cut by the generator's own function, which sorts by keyed hash.
    """
    order = sorted(map(str, range(batch_size * batches)), key=lambda name: keyed_hash(_KEY, "shuffle", name))
    minority = batch_size // 2 - 1
    rows = []
    for batch in range(batches):
        less, more = (SECOND, FIRST) if batch % 2 == 0 else (FIRST, SECOND)
        rows += [less] * minority + [more] * (batch_size - minority)
    logits = dict(zip(order, rows, strict=True))
    first = keyed_hash(_KEY, "shuffle", order[0])
    newcomer = next(f"new {i}" for i in itertools.count() if keyed_hash(_KEY, "shuffle", f"new {i}") < first)
    before, after = (_cut(names, batch_size, batches) for names in (order, [*order, newcomer]))
    logits[newcomer] = SECOND
    reported = loss = 0.0
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        reported += ex_post.gamma([logits[name] for name in old], index % 2, clip=CLIP, temperature=TEMPERATURE)
        loss += _law([logits[name] for name in old], index % 2) - _law([logits[name] for name in new], index % 2)
    name = f"median, pieces of {batch_size}, {batches} batches, one token each; one record more"
    return {"name": name, "reported": _without_rounding(reported), "true": loss}


def replaced_row() -> dict[str, Any]:
    """Contexts of two records: a record more or less *replaces* a row, which the reported cost does not count."""
    rows = [(-6.0, 6.0), (0.0, 6.0), (0.0, 6.0), (6.0, 6.0)]
    exchanged = [*rows[:3], (-6.0, 6.0)]
    reported = ex_post.gamma(rows, 0, clip=CLIP, temperature=TEMPERATURE)
    loss = abs(_law(rows, 0) - _law(exchanged, 0))
    name = "median, contexts of two records, 4 rows, one token; a record changes one row"
    return {"name": name, "reported": _without_rounding(reported), "true": loss}


def flipped_context(batch_size: int, tokens: int, records: int) -> dict[str, Any]:
    """A mean over contexts of two records, two tokens in all: one context turns from sure of the one to the other.

    The other logits sum to 0, so every token is a coin with log-odds ±2c/(sτ): ε at δ is that of so many coins.
    """
    delta = records**-1.1
    odds = 2 * MEAN_CLIP / (batch_size * TEMPERATURE)
    claimed = upper_bounds(
        compose([(BoundedRangeSelectionDpEvent(odds), tokens)]),
        ApproxDP(1.0, delta),
        adjacency="add_remove",
        methods=["zcdp"],
    )[0]
    name = f"mean, contexts of two records, batches of {batch_size}, {tokens} tokens; a record changes one row"
    return {"name": name, "reported": claimed.value, "true": coins_epsilon(odds, tokens, delta), "delta": delta}


def coins_epsilon(odds: float, tokens: int, delta: float) -> float:
    """The exact ε at δ between `tokens` coins with log-odds `odds` and as many with −`odds`.

    The loss of j heads is (2j − tokens)·odds, and δ(ε) is the mean under the first law of max(0, 1 − e^(ε − loss)).
    """
    heads = np.arange(tokens + 1)
    losses = (2 * heads - tokens) * odds
    weights = stats.binom.pmf(heads, tokens, special.expit(odds))

    def excess(epsilon: float) -> float:
        return float((weights * -np.expm1(np.minimum(epsilon - losses, 0.0))).sum()) - delta

    return float(optimize.brentq(excess, 0.0, tokens * odds, xtol=1e-12))


def _cut(names: list[str], batch_size: int, batches: int) -> list[list[str]]:
    """The names in each batch, cut as published."""
    records = [Record(name, "a record") for name in names]
    cut = cut_slots(
        records, label_cells(records, (), batches), key=_KEY, batch_size=batch_size, records_per_context=1, unit=Unit()
    )
    return [[names[index] for (index,) in batch] for batch in cut.contexts]


def _law(rows: list[tuple[float, float]], token: int) -> float:
    """log p(token) of the softmax of the rows' median."""
    scores = np.median(np.array(rows), axis=0) / TEMPERATURE
    return float(scores[token] - special.logsumexp(scores))


def _without_rounding(cost: float) -> float:
    """Costs are rounded up by their own float error, which is below 1e-9 here; a cost that is only that is 0."""
    return 0.0 if cost < 1e-9 else cost


def counterexamples() -> dict[str, Any]:
    """The table."""
    rows = [
        shifted_pieces(),
        replaced_row(),
        flipped_context(64, 367, 108_000),
        flipped_context(256, 689, 108_000),
    ]
    columns = [
        {"title": "what", "key": "name"},
        {"title": "reported ε", "key": "reported", "digits": 6},
        {"title": "lost in truth", "key": "true", "digits": 6},
    ]
    return {"columns": columns, "rows": rows}
