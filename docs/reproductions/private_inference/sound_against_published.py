"""What the published variant costs in truth: pieces of a fixed size beside hashed slots, on the same data.

    python docs/reproductions/private_inference/sound_against_published.py [--seeds 3] [--quick] [--results FOLDER]

As published, the shuffled records of a label are cut into pieces of exactly 64. The papers count a record as a change
of one piece; it shifts all pieces behind it. The sound variant hashes each record into a slot by itself.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Literal

import measures
from batch_costs import outside_grammar
from counterexamples import counterexamples
from runs import CLIP, TEMPERATURE, Results, Written, arguments, delta_of, planned_epsilon, write

import data
from dpassay.accounting import ApproxDP, upper_bounds
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference

Aggregate = Literal["median", "mean"]
Variant = Literal["sound", "as_published"]
VARIANTS: dict[Variant, str] = {"sound": "hashed slots (sound)", "as_published": "pieces of 64 (as published)"}
UTILITY = ("documents", "in_grammar", "frechet", "accuracy")
FULL = {"records": 1024, "batch_size": 64, "tokens": 96, "test": 500}
QUICK = {"records": 256, "batch_size": 64, "tokens": 64, "test": 50}


def mechanism(aggregate: Aggregate, variant: Variant, size: dict[str, int]) -> PrivateInference:
    """The run: uniform batches within each label."""
    return PrivateInference(
        aggregate=aggregate,
        clip=CLIP,
        temperature=TEMPERATURE,
        batch_size=size["batch_size"],
        tokens=size["tokens"],
        records=size["records"],
        labels=data.LABELS,
        variant=variant,
    )


def reported_epsilon(described: PrivateInference) -> float:
    """The ε of a mean as papers count it: one piece, one row more or less, zCDP; at `delta_of` of its records."""
    claim = ApproxDP(1.0, delta_of(described.records))
    plan = described.published_plan()
    return upper_bounds(plan, claim, adjacency=described.adjacency, methods=["zcdp"])[0].value


def costs(written: Written) -> dict[str, float]:
    """What the paper reports for a run, and what it costs: of a mean before the run, of a median after it."""
    if written.mechanism.aggregate == "mean":
        return {"reported": reported_epsilon(written.mechanism), "epsilon": planned_epsilon(written.mechanism)}
    spent = written.generation.spent
    assert spent is not None
    return {"reported": float(spent[:, 2].max()), "epsilon": written.ex_post_epsilon}


def run_table(results: Results) -> dict[str, Any]:
    """One row an aggregate and variant."""
    rows = []
    for aggregate in ("median", "mean"):
        for name in VARIANTS.values():
            setting = f"{aggregate}, {name}"
            numbers = {key: results.of(setting, key) for key in ("reported", "epsilon", *UTILITY)}
            over = [true / said for true, said in zip(numbers["epsilon"], numbers["reported"], strict=True)]
            rows.append({"aggregate": aggregate, "variant": name, **numbers, "over": over})
    columns = [
        {"title": "aggregate", "key": "aggregate"},
        {"title": "batches", "key": "variant"},
        {"title": "ε as the paper counts it", "key": "reported", "digits": 2},
        {"title": "ε that holds", "key": "epsilon", "digits": 2},
        {"title": "one over the other", "key": "over", "digits": 2},
        *(column for column in measures.COLUMNS if column["key"] in UTILITY),
    ]
    return {"columns": columns, "rows": rows}


def grammar_table(results: Results) -> dict[str, Any]:
    """Where a sound median's cost goes."""
    setting = f"median, {VARIANTS['sound']}"
    columns = [
        {"title": "documents outside the grammar", "key": "outside", "digits": 2},
        {"title": "their share of the cost", "key": "cost_outside", "digits": 2},
        {"title": "the costliest document's share of its batch", "key": "costliest", "digits": 2},
    ]
    return {"columns": columns, "rows": [{column["key"]: results.of(setting, column["key"]) for column in columns}]}


def plan_table(size: dict[str, int]) -> dict[str, Any]:
    """Means with one and two records a context: what is known before a run, at the same number of contexts."""
    rows = []
    for records_per_context in (1, 2):
        for variant, name in VARIANTS.items():
            described = dataclasses.replace(
                mechanism("mean", variant, size),
                records_per_context=records_per_context,
                records=size["records"] * records_per_context,
            )
            rows.append(
                {
                    "records": records_per_context,
                    "variant": name,
                    "reported": reported_epsilon(described),
                    "epsilon": planned_epsilon(described),
                }
            )
    columns = [
        {"title": "records in a context", "key": "records"},
        {"title": "batches", "key": "variant"},
        {"title": "ε as the paper counts it", "key": "reported", "digits": 2},
        {"title": "ε that holds", "key": "epsilon", "digits": 2},
    ]
    return {"columns": columns, "rows": rows}


def main() -> int:
    options = arguments("Pieces of a fixed size beside hashed slots, and exact counterexamples.").parse_args()
    size = QUICK if options.quick else FULL
    public = {**size, "clip": CLIP, "temperature": TEMPERATURE}
    results = Results(options.results / "sound_against_published.json", public)
    results.tables = {"plans_of_means": plan_table(size), "counterexamples": counterexamples()}
    results.save()
    model = LanguageModel.load(device="cpu")
    for seed in range(options.first, options.first + options.seeds):
        rows, test = data.topical(size["records"], seed), data.topical(size["test"], seed, "held out")
        for aggregate in ("median", "mean"):
            for variant, name in VARIANTS.items():
                if not results.missing(f"{aggregate}, {name}", seed):
                    continue
                written = write(mechanism(aggregate, variant, size), data.records(rows), model, seed=seed)
                texts = [(document.text, document.label) for document in written.documents]
                utility = measures.utility(texts, rows, test, seed)
                found = costs(written) | {key: utility[key] for key in UTILITY}
                if aggregate == "median" and variant == "sound":
                    found |= outside_grammar(written.generation)
                results.add(f"{aggregate}, {name}", seed, **found, seconds=round(written.seconds, 1))
    results.tables |= {"sound_and_published": run_table(results), "cost_outside_the_grammar": grammar_table(results)}
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
