"""Table 3: mean over uniform batches, mean over clusters and median over clusters, at two budgets.

    python docs/reproductions/private_inference/table_3.py [--seeds 3] [--first 0] [--quick] [--results FOLDER]

The tokens of a mean are the most that its budget allows; a median has the tokens and the batches of the clustered mean.
Clusters do not fill their slots evenly, so slots with noisy counts below half of the batch size do not run.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import measures
import numpy as np
import runs

import data
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference


@dataclass(frozen=True)
class Budget:
    """ε of a mean at δ = n^−1.1, its batch size, and how many clusters each label keeps."""

    epsilon: float
    batch_size: int
    kept: int


@dataclass(frozen=True)
class Method:
    """How batches are made and aggregated."""

    name: str
    aggregate: Literal["mean", "median"]
    clustered: bool


METHODS = (
    Method("mean, labels", "mean", False),
    Method("mean, clusters", "mean", True),
    Method("median, clusters", "median", True),
)
BUDGETS = (Budget(10.0, 31, 8), Budget(3.0, 127, 4))
FULL: dict[str, Any] = {"records": 1984, "public_texts": 3000, "centres": 32, "test": 1000, "held_out": 125}
QUICK: dict[str, Any] = {"records": 64, "public_texts": 400, "centres": 8, "test": 50, "held_out": 60}
REAL = "real texts"
COUNT_EPSILON, SLOT_EPSILON = 0.1, 0.2
METHOD = (
    {"title": "method", "key": "name"},
    {"title": "K", "key": "clusters"},
    {"title": "B", "key": "B"},
    {"title": "kind of ε", "key": "guarantee"},
)
COSTS: tuple[dict[str, Any], ...] = (
    {"title": "ε", "key": "epsilon", "digits": 2},
    {"title": "ε* of the median slot", "key": "typical", "digits": 2},
    {"title": "records of the worst slot", "key": "worst_size", "digits": 0},
    {"title": "ε before the run", "key": "planned", "digits": 1},
    {"title": "tokens", "key": "tokens", "digits": 0},
    {"title": "slots run", "key": "ran", "digits": 0},
)


def describe(
    method: Method, budget: Budget, records: int, tokens: int, centres: Path | str = "centres.safetensors"
) -> PrivateInference:
    """The mechanism; its plan does not need the file of centres."""
    return PrivateInference(
        aggregate=method.aggregate,
        clip=runs.CLIP,
        temperature=runs.TEMPERATURE,
        batch_size=budget.batch_size,
        tokens=tokens,
        records=records,
        labels=data.LABELS,
        centres=centres if method.clustered else None,
        kept_centres=budget.kept if method.clustered else None,
        cluster_count_epsilon=COUNT_EPSILON,
        slot_threshold=budget.batch_size / 2 if method.clustered else None,
        slot_count_epsilon=SLOT_EPSILON,
    )


def tokens_of(method: Method, budget: Budget, records: int) -> int:
    """Tokens of a slot: the most within the budget for the mean that is batched alike."""
    mean = Method(method.name, "mean", method.clustered)
    return runs.most_tokens(partial(describe, mean, budget, records), budget.epsilon)


def one(
    method: Method, budget: Budget, tokens: int, size: dict[str, Any], seed: int, model: LanguageModel
) -> dict[str, Any]:
    """The numbers of one run. The ε of a median is ex post, its counts' ε included."""
    rows = data.topical(size["records"], seed)
    test = data.topical(size["test"], seed, "held out")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "centres.safetensors"
        Centres.fit(data.public_texts("same", size["public_texts"], seed), size["centres"], seed=seed).save(path)
        mechanism = describe(method, budget, size["records"], tokens, path)
        run = runs.write(mechanism, data.records(rows), model, seed=seed)
        median = method.aggregate == "median"
        epsilon = run.ex_post_epsilon if median else runs.planned_epsilon(mechanism)
        planned = runs.planned_epsilon(mechanism)
    written = [(document.text, document.label) for document in run.documents]
    costs: dict[str, Any] = {"epsilon": epsilon, "planned": planned, "tokens": tokens, "seconds": run.seconds}
    ran = np.array(run.generation.transcript.running)
    costs |= {"slots": len(ran), "ran": int(ran.sum())}
    if run.generation.spent is not None:
        own = run.generation.spent[ran, :2].max(axis=1)
        worst = np.flatnonzero(ran)[own.argmax()]
        costs |= {"typical": float(np.median(own)), "worst_size": int(run.generation.slot_sizes[worst])}
    return measures.utility(written, rows, test, seed) | costs


def table(results: runs.Results, budgets: tuple[Budget, ...]) -> dict[str, Any]:
    """The row of real texts, and one for each budget and method."""
    real: dict[str, Any] = {key: results.of(REAL, key) for key in measures.NAMES}
    rows = [real | {"name": REAL}]
    for budget in budgets:
        for method in METHODS:
            setting = setting_of(method, budget)
            row: dict[str, Any] = {
                key: results.of(setting, key) for key in (*measures.NAMES, *(str(column["key"]) for column in COSTS))
            }
            guarantee = "ex post" if method.aggregate == "median" else "(ε, δ)"
            clusters = budget.kept * len(data.LABELS) if method.clustered else None
            rows.append(
                row | {"name": method.name, "clusters": clusters, "guarantee": guarantee, "B": budget.batch_size}
            )
    return {"columns": [*METHOD, *COSTS, *measures.COLUMNS], "rows": rows}


def setting_of(method: Method, budget: Budget) -> str:
    """The name of a method at a budget."""
    return f"{method.name}, ε = {budget.epsilon:g}"


def main() -> int:
    options = runs.arguments("Table 3: means and medians over uniform and clustered batches.").parse_args()
    size, budgets = (QUICK, (Budget(100.0, 16, 2),)) if options.quick else (FULL, BUDGETS)
    results = runs.Results(options.results / "table_3.json", size)
    model = LanguageModel.load(device="cpu")
    cases = [(budget, method) for budget in budgets for method in METHODS]
    tokens = {case: tokens_of(case[1], case[0], size["records"]) for case in cases}
    for seed in range(options.first, options.first + options.seeds):
        if results.missing(REAL, seed):
            held_out = data.topical(size["test"] + size["held_out"], seed, "held out")
            test, texts = held_out[: size["test"]], held_out[size["test"] :]
            results.add(REAL, seed, **measures.utility(texts, data.topical(size["records"], seed), test, seed))
        for budget, method in cases:
            setting = setting_of(method, budget)
            if results.missing(setting, seed):
                results.add(setting, seed, **one(method, budget, tokens[budget, method], size, seed, model))
        results.tables = {"table_3": table(results, budgets)}
        results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
