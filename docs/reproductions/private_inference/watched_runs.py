"""The runs behind three of the privacy tables: medians over four kinds of batches, seen by the strongest attacker.

For every batch it keeps the realised cost ε*, the published Σ γ, the largest leave-one-out loss, and what tokens cost
in each quarter of a document; for every position in a document, what tokens cost on average. Each batch samples as many
tokens as a *mean* over such batches may within (10, n^−1.1)-DP.

    python docs/reproductions/private_inference/watched_runs.py [--seeds 3] [--quick] [--results FOLDER]

`median_against_mean.py`, `figures_3_6.py` and `table_8.py` do the runs that they miss and write their tables.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batch_costs import batches_of, positions_of
from runs import CLIP, TEMPERATURE, Results, arguments, delta_of, most_tokens, write

import data
from dpassay.accounting import ApproxDP, upper_bounds
from dpassay.attacks.private_inference.leave_one_out import LeaveOneOut
from dpassay.data.corpora import LABELS as NOTE_LABELS
from dpassay.data.records import Record, builtin_records
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference

CLUSTERED, ALL_SLOTS, UNIFORM = "topics, clustered", "topics, clustered, small batches too", "topics, uniform"
NOTES, LABELLED, KEYS = "notes", "notes, by label", "keys"
FULL_BATCHES = (CLUSTERED, UNIFORM, NOTES, KEYS)
SETTINGS = (*FULL_BATCHES, ALL_SLOTS, LABELLED)
BATCH_SIZE = 63
TARGET = 10.0
_CENTRES, _KEPT, _PUBLIC = 64, 4, 2048


def parameters(quick: bool) -> dict[str, Any]:
    """What all runs have in common."""
    return {
        "clip": CLIP,
        "temperature": TEMPERATURE,
        "batch_size": BATCH_SIZE,
        "records": 512 if quick else 1024,
        "tokens": 24 if quick else None,  # None: as many as the mean may sample
        "target": TARGET,
        "centres": _CENTRES,
        "kept_centres": 2 if quick else _KEPT,
        "slot_threshold": 32,  # of `CLUSTERED`
        "slot_count_epsilon": 0.2,
        "public_texts": 512 if quick else _PUBLIC,
    }


def records_of(setting: str, count: int, seed: int) -> list[Record]:
    """The private records of a setting."""
    if setting == KEYS:
        return builtin_records("keys", count, seed)
    if setting in (NOTES, LABELLED):
        return builtin_records("notes", count, seed)
    return data.records(data.topical(count, seed))


def mechanism_of(
    setting: str, aggregate: Any, public: dict[str, Any], centres: Path, tokens: int | None = None
) -> PrivateInference:
    """The public description of a setting's run.

    Args:
        setting: one of `SETTINGS`.
        aggregate: ``median`` or ``mean``.
        public: `parameters`.
        centres: a file of public centres.
        tokens: of each slot; None takes `parameters`, or else as many as the mean may sample within the target.
    """
    labels = {NOTES: (), KEYS: (), LABELLED: NOTE_LABELS}.get(setting, data.LABELS)

    def describe(count: int) -> PrivateInference:
        extra: dict[str, Any] = {}
        if setting in (CLUSTERED, ALL_SLOTS):
            extra = {"centres": centres, "kept_centres": public["kept_centres"]}
        if setting == CLUSTERED:
            extra |= {name: public[name] for name in ("slot_threshold", "slot_count_epsilon")}
        return PrivateInference(
            aggregate=aggregate,
            clip=public["clip"],
            temperature=public["temperature"],
            batch_size=public["batch_size"],
            tokens=count,
            records=public["records"],
            labels=labels,
            **extra,
        )

    wanted = tokens or public["tokens"]
    if wanted is None:
        wanted = most_tokens(lambda count: dataclasses.replace(describe(count), aggregate="mean"), public["target"])
    return describe(wanted)


def mean_epsilon(mechanism: PrivateInference, method: str | None = None) -> float:
    """The ε at δ = n^−1.1 of a mean with the same batches and tokens: the smallest certified one, or one method's."""
    claim = ApproxDP(TARGET, delta_of(mechanism.records))
    mean = dataclasses.replace(mechanism, aggregate="mean")
    return upper_bounds(mean.plan(), claim, adjacency=mean.adjacency, methods=[method] if method else None)[0].value


def watched(folder: Path, seeds: Sequence[int], quick: bool) -> Results:
    """The runs of all settings and seeds: those that the folder has, and the others done now."""
    public = parameters(quick)
    results = Results(folder / "watched_runs.json", public)
    model: LanguageModel | None = None
    with tempfile.TemporaryDirectory() as temporary:
        for seed in seeds:
            centres = Path(temporary) / f"{seed}.safetensors"
            for setting in SETTINGS:
                if not results.missing(setting, seed):
                    continue
                if not centres.exists():
                    texts = data.public_texts("same", public["public_texts"], seed)
                    Centres.fit(texts, public["centres"], seed=seed).save(centres)
                model = model or LanguageModel.load(device="cpu")
                mechanism = mechanism_of(setting, "median", public, centres)
                watcher = LeaveOneOut.of(mechanism, public["records"])
                records = records_of(setting, public["records"], seed)
                written = write(mechanism, records, model, seed=seed, observers=[watcher])
                results.add(
                    setting,
                    seed,
                    tokens=mechanism.tokens,
                    seconds=round(written.seconds, 1),
                    ex_post_epsilon=written.ex_post_epsilon,
                    mean_epsilon=mean_epsilon(mechanism),
                    mean_zcdp=mean_epsilon(mechanism, "zcdp"),
                    batches=batches_of(written, watcher),
                    positions=positions_of(written),
                )
    return results


def main() -> None:
    options = arguments("The median runs of which three of the privacy tables are made.").parse_args()
    watched(options.results, range(options.first, options.first + options.seeds), options.quick)


if __name__ == "__main__":
    main()
