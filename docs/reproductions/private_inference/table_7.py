"""Table 7: are keys of the data printed more often than keys that were held out?

    python docs/reproductions/private_inference/table_7.py [--seeds 1] [--quick] [--results FOLDER]

Half of 50 000 candidate keys are in the data, by independent coins. Documents begin with the records' own prefix. The
control runs the same attack on documents that are each written from one record, without any protection.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, Literal

from runs import CLIP, TEMPERATURE, Results, Written, arguments, delta_of, planned_epsilon, write

from dpassay.accounting import ApproxDP, ExPostDP
from dpassay.accounting.adjacency import Unit
from dpassay.accounting.bounds import Bound
from dpassay.attacks.canaries.reconstruction import PREFIX, Canaries, Reconstruction, extract_keys, reconstruct
from dpassay.audits.games import reconstruction_audit
from dpassay.audits.statistics.binomial import clopper_pearson
from dpassay.generators.private_inference.canaries import canary_records
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.transcripts import Document

Aggregate = Literal["median", "mean", "none"]
NAMES: dict[Aggregate, str] = {"median": "median", "mean": "mean", "none": "control: no protection"}
CONFIDENCE = 0.95
FULL = {"candidates": 50_000, "batch_size": 63, "documents": 4, "control_batch": 8, "control_documents": 2}
QUICK = {"candidates": 1000, "batch_size": 31, "documents": 4, "control_batch": 8, "control_documents": 2}


def mechanism(aggregate: Aggregate, size: dict[str, int], model: LanguageModel) -> PrivateInference:
    """The run; the control has small slots, since each of its documents is written from one record anyway."""
    control = aggregate == "none"
    key_and_end = len(model.encode("00000")) + 1
    return PrivateInference(
        aggregate=aggregate,
        clip=CLIP,
        temperature=TEMPERATURE,
        batch_size=size["control_batch" if control else "batch_size"],
        tokens=key_and_end * size["control_documents" if control else "documents"],
        records=size["candidates"] // 2,
        prefix=PREFIX,
    )


def overlap(documents: Sequence[Document], keys: Sequence[str]) -> int:
    """How many documents print one of the keys."""
    wanted = set(keys)
    return sum(not wanted.isdisjoint(extract_keys(document.text)) for document in documents)


def share(hits: int, trials: int) -> dict[str, Any]:
    """A percentage with its Clopper–Pearson interval."""
    found = clopper_pearson(hits, trials, confidence=CONFIDENCE)
    return {"value": 100 * hits / trials, "interval": [100 * found.lower, 100 * found.upper]}


def audited(
    found: Reconstruction, written: Written, control: Reconstruction | None, epsilon: float | None
) -> dict[str, Any]:
    """The audit's own numbers: interval of the difference, p-value and the lower bound on ε at the claim's δ."""
    median = written.mechanism.aggregate == "median"
    guarantee = ExPostDP(epsilon or 0.0) if median else ApproxDP(epsilon or 0.0, delta_of(written.mechanism.records))
    result = reconstruction_audit(
        found, guarantee=guarantee, adjacency="add_remove", unit=Unit(), control=control, confidence=CONFIDENCE
    )
    bound: Bound | None = next(iter(result.bounds), None)
    difference = found.source_hits / found.source - found.holdout_hits / found.holdout
    assert result.difference is not None
    return {
        "difference": {
            "value": 100 * difference,
            "interval": [100 * result.difference.lower, 100 * result.difference.upper],
        },
        "p_value": result.p_value,
        "lower_bound": None if bound is None else bound.value,
        "ceiling": None if bound is None else bound.ceiling,
        "conclusion": result.conclusion,
    }


def one(aggregate: Aggregate, size: dict[str, int], seed: int, model: LanguageModel) -> tuple[Written, dict[str, Any]]:
    """A run, what it cost, and what its documents print."""
    canaries = Canaries.draw(size["candidates"], seed=seed)
    described = mechanism(aggregate, size, model)
    records = canary_records(canaries, (), Unit())
    written = write(described, records, model, seed=seed)
    epsilon = None
    if aggregate != "none":
        epsilon = written.ex_post_epsilon if aggregate == "median" else planned_epsilon(described)
    documents = [document for document in written.generation.documents if extract_keys(document.text)]
    source, holdout = (overlap(documents, keys) for keys in (canaries.source, canaries.holdout))
    counts = reconstruct(written.generation.documents, canaries, [record.text for record in records])
    return written, {
        "epsilon": epsilon,
        "documents": len(documents),
        "source": source,
        "holdout": holdout,
        "source_share": share(source, len(documents)),
        "holdout_share": share(holdout, len(documents)),
        "counts": dataclasses.asdict(counts),
        "seconds": round(written.seconds, 1),
    }


def table(results: Results) -> dict[str, Any]:
    """One row a method and seed."""
    rows = []
    for seed in sorted({run["seed"] for run in results.runs}):
        for name in NAMES.values():
            run = next(run for run in results.runs if run["setting"] == name and run["seed"] == seed)
            rows.append(
                {**run, "p": f"{run['p_value']:.2g}" if run["p_value"] >= 1e-9 else "below 1e-9", "method": name}
            )
    columns = [
        {"title": "method", "key": "method"},
        {"title": "ε", "key": "epsilon", "digits": 2},
        {"title": "documents with a key", "key": "documents"},
        {"title": "print a source key, %", "key": "source_share", "digits": 1},
        {"title": "print a holdout key, %", "key": "holdout_share", "digits": 1},
        {"title": "source − holdout keys printed, points", "key": "difference", "digits": 2},
        {"title": "p", "key": "p"},
        {"title": "ε at least", "key": "lower_bound", "digits": 2},
        {"title": "test reaches at most", "key": "ceiling", "digits": 2},
    ]
    return {"columns": columns, "rows": rows}


def main() -> int:
    parser = arguments("Table 7: source and holdout keys among generated keys.")
    parser.set_defaults(seeds=1)
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    results = Results(options.results / "table_7.json", {**size, "clip": CLIP, "temperature": TEMPERATURE})
    model = LanguageModel.load(device="cpu")
    for seed in range(options.first, options.first + options.seeds):
        control: Reconstruction | None = None
        for aggregate in ("none", "median", "mean"):
            if not results.missing(NAMES[aggregate], seed):
                found = next(r for r in results.runs if r["setting"] == NAMES[aggregate] and r["seed"] == seed)
                control = Reconstruction(**found["counts"]) if aggregate == "none" else control
                continue
            written, numbers = one(aggregate, size, seed, model)
            counts = Reconstruction(**numbers["counts"])
            numbers |= audited(counts, written, control, numbers["epsilon"])
            control = counts if aggregate == "none" else control
            results.add(NAMES[aggregate], seed, **numbers)
    results.tables = {"table_7": table(results)}
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
