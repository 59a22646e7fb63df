"""Private inference with clips about public logits beside plain clips: ε at equal quality, over several seeds.

    python benchmarks/centred.py [--seeds 5] [--quick] [--results FOLDER]   # whole runs: hours on two cores
    python benchmarks/centred.py --only "topics, mean"                      # those of one kind of data and aggregate
    python benchmarks/centred.py --only loss                                # one prediction, no sampling: two minutes
    python benchmarks/fill_guides.py

Whole runs: means and medians over made-up topics with labels and over notes by label, one of which is rare, at the same
records, slots, tokens and seeds. Of each run: ε of the plan (a median's is its a-priori worst case), ε* of a median and
its costliest slot with at most one context, and utility beside the real texts. A centred setting is as good as the
plain one where its mean Fréchet distance and topics TV are within the spread (largest less smallest) of the plain
seeds. Quality is that of documents of labels with at least half as many records as there are in the mean: others have
slots with far fewer records than the public denominator, in which a mean writes what the model without a record would
(centred), or noise (plain). Of these it says how many there are, and are in grammar.

Loss: how well the mean over a slot of 63 notes predicts four other notes, token by token, in nats; and what top_k
keeps: how many tokens, what share of the notes' tokens is not among them, and how likely the others would have been.
Finished runs are kept beside this file and not done again.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import importlib
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs" / "reproductions" / "private_inference"))


from dpassay.data.corpora import LABELS as NOTE_LABELS
from dpassay.data.records import builtin_records
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference import aggregation
from dpassay.mechanisms.private_inference.generator import PrivateInference

made_up, measures, runs, tables = (importlib.import_module(name) for name in ("data", "measures", "runs", "tables"))

CLIPS: tuple[tuple[float, dict[str, Any]], ...] = (
    (10.0, {}),
    (4.0, {"center": "public"}),
    (3.0, {"center": "public"}),
    (2.0, {"center": "public"}),
    (4.0, {"center": "public", "top_k": 1}),
)
"""The clips that are compared, the plain one first, and whether they are about public logits, which tokens are kept."""
DATA = {"topics": tuple(made_up.LABELS), "notes, by label": NOTE_LABELS}
AGGREGATES = ("mean", "median")
LOSS = "loss"
Rows: TypeAlias = Sequence[tuple[str, str | None]]
TEMPERATURE = 1.2


def setting_of(kind: str, aggregate: str, clip: float, about: dict[str, Any]) -> str:
    kept = f", top {about['top_k']}" if "top_k" in about else ""
    return f"{kind}, {aggregate}, c = {clip:g}{', centred' if about else ''}{kept}"


def mechanism_of(
    kind: str, aggregate: Any, clip: float, about: dict[str, Any], public: dict[str, Any]
) -> PrivateInference:
    return PrivateInference(
        aggregate=aggregate,
        clip=clip,
        temperature=TEMPERATURE,
        batch_size=public["batch_size"],
        tokens=public["tokens"],
        records=public["records"],
        labels=DATA[kind],
        **about,
    )


def thin_slot(written: Any) -> float | None:
    """ε* of the costliest slot with at most one context; None where every slot has more."""
    spent = written.generation.spent
    thin = [index for index, size in enumerate(written.generation.slot_sizes) if size <= 1]
    return float(spent[thin, :2].max()) if spent is not None and thin else None


def run_all(results: Any, public: dict[str, Any], seeds: Iterable[int], only: str) -> None:
    """The runs that are missing, of settings that begin with `only`."""
    model = LanguageModel.load()
    for seed in seeds:
        for kind in DATA:
            rows = (
                made_up.topical(public["records"], seed)
                if kind == "topics"
                else [(item.text, item.label) for item in builtin_records("notes", public["records"], seed)]
            )
            others = made_up.topical(512, seed, "held out") if kind == "topics" else rows[:512]
            for aggregate in AGGREGATES:
                for clip, about in CLIPS:
                    setting = setting_of(kind, aggregate, clip, about)
                    if not setting.startswith(only) or not results.missing(setting, seed):
                        continue
                    mechanism = mechanism_of(kind, aggregate, clip, about, public)
                    written = runs.write(mechanism, made_up.records(rows), model, seed=seed)
                    texts = [(document.text, document.label) for document in written.documents]
                    median = aggregate == "median"
                    results.add(
                        setting,
                        seed,
                        epsilon=runs.planned_epsilon(mechanism),
                        ex_post_epsilon=written.ex_post_epsilon if median else None,
                        thin_slot=thin_slot(written) if median else None,
                        seconds=written.seconds,
                        **measured(texts, rows, others, seed),
                    )


def measured(texts: Rows, rows: Rows, others: Rows, seed: int) -> dict[str, Any]:
    """Utility of the documents of labels with full slots; of the others, how many there are and are in grammar."""
    counts = Counter(label for _, label in rows)
    full = {label for label, count in counts.items() if 2 * count * len(counts) >= len(rows)}
    kept, real, test = ([row for row in side if row[1] in full] for side in (texts, rows, others))
    thin = [row for row in texts if row[1] not in full]
    found = {"documents": len(kept), "thin_documents": len(thin) if full != set(counts) else None}
    if len(kept) > 1:
        found |= measures.utility(kept, real, test, seed)
    if thin:
        found["thin_in_grammar"] = 1 - measures.topics([text for text, _ in thin])["none"] / len(thin)
    return found


def numbers(values: Sequence[Any]) -> NDArray[np.float64]:
    return np.array([value for value in values if value is not None], dtype=np.float64)


def as_good(results: Any, plain: str, centred: str, name: str) -> bool | None:
    """Whether a distance is within the spread of the plain runs; None where a run lacks it."""
    base, other = numbers(results.of(plain, name)), numbers(results.of(centred, name))
    if not len(base) or not len(other):
        return None
    return bool(other.mean() - base.mean() <= np.ptp(base))


COSTS = {"epsilon": "ε of the plan", "ex_post_epsilon": "ε*", "thin_slot": "ε* of a thin slot"}
QUALITY = {"frechet": "Fréchet ↓", "topic_distance": "topics TV ↓", "in_grammar": "in grammar ↑"}
THIN = {"thin_documents": "documents of rare labels", "thin_in_grammar": "of these in grammar"}


def known(results: Any, setting: str, key: str) -> Any:
    """The cell of the seeds that have a number: not every run has a thin slot."""
    return tables.interval([value for value in results.of(setting, key) if value is not None])


def runs_table(results: Any) -> dict[str, Any]:
    """Costs and quality of each setting; whether a centred one is as good as the plain one, and its share of the ε."""
    titles = {"setting": "data, aggregate, clip", **COSTS, "share": "share of ε", **QUALITY, "good": "as good", **THIN}
    rows = []
    for kind in DATA:
        for aggregate in AGGREGATES:
            settings = [setting_of(kind, aggregate, clip, about) for clip, about in CLIPS]
            for setting in settings:
                if not results.of(setting, "epsilon"):
                    continue
                row = {"setting": setting, **{key: known(results, setting, key) for key in COSTS}}
                row |= {key: tables.interval(results.of(setting, key)) for key in (*QUALITY, *THIN)}
                if setting != settings[0]:
                    good = [as_good(results, settings[0], setting, key) for key in ("frechet", "topic_distance")]
                    row["good"] = None if None in good else "yes" if all(good) else "no"
                    row["share"] = float(
                        numbers(results.of(setting, "epsilon")).mean()
                        / numbers(results.of(settings[0], "epsilon")).mean()
                    )
                rows.append(row)
    made: dict[str, Any] = tables.table(titles, rows, **dict.fromkeys((*COSTS, *QUALITY, *THIN, "share"), 2))
    return made


def tables_of(results: Any) -> dict[str, Any]:
    """Whole runs; the loss of predictions; what top_k keeps."""
    found = [run for run in results.runs if run["setting"] == LOSS]
    losses, kept = ([row for run in found for row in run[key]] for key in ("losses", "kept"))
    titles = {"clip": "clip", "loss": "loss, nats a token"}
    of_kept = {"clip": "centred, c", "top_k": "`top_k`", "size": "tokens kept", "lost": "tokens of the notes cut"}
    return {
        "centred_runs": runs_table(results),
        "centred_loss": tables.table(titles, losses),
        "centred_top_k": tables.table(
            of_kept | {"cut": "probability cut"}, kept, clip=0, top_k=0, size=1, lost=4, cut=5
        ),
    }


def loss() -> dict[str, Any]:
    """The loss of four notes under the mean of a slot of 63 others, for clips of both kinds, and what top_k keeps."""
    model, records = LanguageModel.load(), builtin_records("notes", 80, 0)
    mechanism = PrivateInference(
        aggregate="mean", clip=4.0, temperature=TEMPERATURE, batch_size=63, tokens=40, records=63, document_tokens=64
    )
    prompt = mechanism.prompt(model, None)
    contexts = [prompt.context([record.text], prompt.record_tokens) for record in records[:63]]
    steps: list[tuple[torch.Tensor, int]] = []
    for record in records[63:67]:
        session = model.packed_rows([*contexts, prompt.context([], prompt.record_tokens)])
        for token in model.encode(record.text)[:40]:
            steps.append((session.logits().clone(), token))
            session.append(torch.full((64,), token))
    tail = PrivateInference(
        aggregate="mean", clip=4.0, temperature=TEMPERATURE, batch_size=63, tokens=1, records=63, center="public"
    ).tail

    def average(clip: float, *, centred: bool) -> float:
        laws = [
            aggregation.mean(
                logits[:-1],
                logits[-1] if centred else None,
                clip=clip,
                temperature=TEMPERATURE,
                denominator=63,
                tail=tail if centred else None,
            ).log_probability(token)
            for logits, token in steps
        ]
        return -float(np.mean(laws))

    def kept(clip: float, top_k: int) -> tuple[float, float, float]:
        sizes, lost, cut = [], [], []
        for logits, token in steps:
            law: dict[str, Any] = {"clip": clip, "temperature": TEMPERATURE, "denominator": 63, "tail": tail}
            whole, few = (aggregation.mean(logits[:-1], logits[-1], **law, top_k=k) for k in (None, top_k))
            assert few.kept is not None
            sizes.append(len(few.kept))
            lost.append(few.column(token) is None)
            likely = np.exp(whole.log_probabilities(model.vocabulary_size))
            cut.append(1 - likely[few.kept].sum())
        return float(np.mean(sizes)), float(np.mean(lost)), float(np.mean(cut))

    alone = [aggregation.single(rows, rows[-1], temperature=TEMPERATURE).log_probability(x) for rows, x in steps]
    losses: list[dict[str, Any]] = [{"clip": "the model without a record", "loss": -float(np.mean(alone))}]
    for centred, clips in ((False, (6.0, 8.0, 10.0, 12.0)), (True, (1.0, 2.0, 3.0, 4.0, 6.0))):
        for clip in clips:
            name = f"{'centred' if centred else 'plain'}, c = {clip:g}"
            losses.append({"clip": name, "loss": average(clip, centred=centred)})
    of_kept = [(clip, top_k, *kept(clip, top_k)) for clip in (3.0, 4.0) for top_k in (1, 5, 20)]
    names = ("clip", "top_k", "size", "lost", "cut")
    return {
        "tokens": len(steps),
        "vocabulary": model.vocabulary_size,
        "losses": losses,
        "kept": [dict(zip(names, row, strict=True)) for row in of_kept],
    }


def main() -> None:
    parser = runs.arguments(__doc__.splitlines()[0])
    parser.set_defaults(seeds=5, results=Path(__file__).parent)
    parser.add_argument(
        "--only", default="", metavar="BEGINNING", help='settings that begin so, such as "topics, mean"'
    )
    given = parser.parse_args()
    public = {
        "temperature": TEMPERATURE,
        "batch_size": 15 if given.quick else 63,
        "records": 64 if given.quick else 2048,
        "tokens": 24 if given.quick else 96,
    }
    results = runs.Results(given.results / ("centred_quick.json" if given.quick else "centred.json"), public)
    try:
        if LOSS.startswith(given.only) and results.missing(LOSS, 0):
            results.add(LOSS, 0, **loss())
        if not LOSS.startswith(given.only or " "):
            run_all(results, public, range(given.first, given.first + given.seeds), given.only)
    finally:
        tables.keep(results, tables_of(results))


if __name__ == "__main__":
    main()
