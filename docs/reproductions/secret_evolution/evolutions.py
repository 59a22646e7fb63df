"""Runs of secret-protected evolution and Aug-PE on made-up texts with planted secrets, in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from shared import data, topic_of

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.records import Record
from dpassay.mechanisms.aug_pe.generator import AugPE
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.writers import ModelWriter
from dpassay.mechanisms.secret_evolution.detection import PatternSecrets
from dpassay.mechanisms.secret_evolution.generator import SecretEvolution

SECRET = r"\(ref \d{5}\)"
OCCURRENCES = 4
"""Records that hold one secret; the last secret is in those that are left over, too."""

Layout = Literal["scattered", "small topics"]
Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class Corpus:
    """Texts as they are measured against, and as a generator gets them."""

    rows: Rows
    records: list[Record]
    most: int
    """Records that hold the same secret, at most."""


def corpus(count: int, seed: int, layout: Layout) -> Corpus:
    """Made-up texts of which about a tenth hold a secret, each secret in `OCCURRENCES` of them.

    Args:
        count: how many.
        seed: of the draw.
        layout: ``scattered`` over all records at random, or in every record of the smallest topic of each label, so
            that no public record shows it.
    """
    rows = data.topical(count, seed)
    rng = np.random.default_rng([seed, 7])
    if layout == "scattered":
        holders = rng.choice(count, size=count // 10, replace=False)
    else:
        small = {topics[-1] for topics in data.TOPICS_OF.values()}
        holders = rng.permutation([place for place, (text, _) in enumerate(rows) if topic_of(text) in small])
    marked = [text for text, _ in rows]
    codes = rng.choice(100_000, size=-(-len(holders) // OCCURRENCES), replace=False)[: len(holders) // OCCURRENCES]
    for place, holder in enumerate(holders):
        marked[holder] += f" (ref {codes[min(place // OCCURRENCES, len(codes) - 1)]:05d})"
    records = data.records([(text, label) for text, (_, label) in zip(marked, rows, strict=True)])
    return Corpus(rows, records, OCCURRENCES + len(holders) % OCCURRENCES)


def secret_evolution(size: dict[str, Any], r: float, **changes: Any) -> SecretEvolution:
    """The mechanism at (p, r)."""
    common = SecretEvolution(
        secrets=(PatternSecrets(SECRET),),
        p=size["p"],
        r=r,
        rounds=size["rounds"],
        synthetic=size["synthetic"],
        variations=size["variations"],
        clusters=size["clusters"],
        labels=data.LABELS,
    )
    return replace(common, **changes)


def aug_pe(size: dict[str, Any], noise_multiplier: float) -> AugPE:
    """Aug-PE with the same numbers."""
    return AugPE(
        noise_multiplier=noise_multiplier,
        rounds=size["rounds"],
        synthetic=size["synthetic"],
        variations=size["variations"],
        records=size["records"],
        labels=data.LABELS,
    )


def writer_of(model: LanguageModel, seed: int) -> ModelWriter:
    """The embedded model, whose random texts are shown one of 200 made-up examples, all topics in equal shares.

    They are no records, and the same for both mechanisms, so that both begin with the same texts.
    """
    shares = [1 / len(data.SHARES)] * len(data.SHARES)
    examples: dict[str | None, list[str]] = {label: [] for label in data.LABELS}
    for text, label in data.topical(200, seed, "public", shares):
        examples[label].append(text)
    return ModelWriter(model=model, examples=examples)


def written(
    mechanism: SecretEvolution | AugPE, records: Sequence[Record], model: LanguageModel, seed: int
) -> tuple[Rows, Any]:
    """What a run writes, with labels, and its result; noise is the system's entropy, texts follow from the seed."""
    writer, described = writer_of(model, seed), replace(mechanism, seed=seed)
    plan = described.plan(described.incidence(records)) if isinstance(described, SecretEvolution) else described.plan()
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.sqlite") as ledger:
        run = ledger.begin("run", plan=plan, adjacency=described.adjacency, unit=described.unit, about={})
        result = described.generate(records, writer, run, journal=Path(folder) / "candidates.jsonl")
        run.finish()
    return [(text.text, text.label or "") for text in result.texts], result
