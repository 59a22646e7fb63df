"""Private inference with clips about public logits beside plain clips: ε at equal quality, over several seeds.

    python benchmarks/centred.py [--seeds 5] [--quick] [--results FOLDER]   # whole runs: hours on two cores
    python benchmarks/centred.py --only "topics, mean"                      # those of one kind of data and aggregate
    python benchmarks/centred.py --loss                                     # one prediction, no sampling: two minutes

Whole runs: means and medians over made-up topics with labels and over notes by label, one of which is rare, at the same
records, slots, tokens and seeds. Of each run: ε of the plan (a median's is its a-priori worst case), ε* of a median and
its costliest slot with at most one context, and utility beside the real texts. A centred setting is as good as the
plain one where its mean Fréchet distance and topics TV are within the spread (largest less smallest) of the plain
seeds.

`--loss`: how well the mean over a slot of 63 notes predicts four other notes, token by token, in nats; and what top_k
keeps: how many tokens, what share of the notes' tokens is not among them, and how likely the others would have been.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import importlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs" / "reproductions" / "private_inference"))


from dpassay.data.corpora import LABELS as NOTE_LABELS
from dpassay.data.records import builtin_records
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference import aggregation
from dpassay.mechanisms.private_inference.generator import PrivateInference

made_up, measures, runs = (importlib.import_module(name) for name in ("data", "measures", "runs"))

RESULTS = Path(__file__).parent
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
TITLES = ("ε of plan", "ε*", "thin slot", "Fréchet", "topics TV", "in grammar")
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
                    measured = (
                        measures.utility(texts, rows, others, seed) if len(texts) > 1 else {"documents": len(texts)}
                    )
                    median = aggregate == "median"
                    results.add(
                        setting,
                        seed,
                        epsilon=runs.planned_epsilon(mechanism),
                        ex_post_epsilon=written.ex_post_epsilon if median else None,
                        thin_slot=thin_slot(written) if median else None,
                        seconds=written.seconds,
                        **measured,
                    )


def numbers(values: Sequence[Any]) -> NDArray[np.float64]:
    return np.array([value for value in values if value is not None], dtype=np.float64)


def shown(values: Sequence[Any], digits: int = 2) -> str:
    known = numbers(values)
    if not len(known):
        return "–"
    return f"{known.mean():.{digits}f} ± {known.std(ddof=1) if len(known) > 1 else 0.0:.{digits}f}"


def as_good(results: Any, plain: str, centred: str, name: str) -> bool | None:
    """Whether a distance is within the spread of the plain runs; None where a run lacks it."""
    base, other = numbers(results.of(plain, name)), numbers(results.of(centred, name))
    if not len(base) or not len(other):
        return None
    return bool(other.mean() - base.mean() <= np.ptp(base))


def report(results: Any) -> None:
    """A table of each kind of data and aggregate, and the least ε at equal quality as a share of the plain one."""
    for kind in DATA:
        for aggregate in AGGREGATES:
            settings = [setting_of(kind, aggregate, clip, about) for clip, about in CLIPS]
            plain = settings[0]
            print(f"\n{'setting':42} " + " ".join(f"{title:15}" for title in TITLES) + " as good")
            for setting in settings:
                cells = [
                    shown(results.of(setting, name), digits)
                    for name, digits in (
                        ("epsilon", 2),
                        ("ex_post_epsilon", 2),
                        ("thin_slot", 2),
                        ("frechet", 3),
                        ("topic_distance", 3),
                        ("in_grammar", 3),
                    )
                ]
                good = [as_good(results, plain, setting, name) for name in ("frechet", "topic_distance")]
                verdict = "–" if None in good else "yes" if all(good) else "no"
                print(f"{setting:42} " + " ".join(f"{cell:15}" for cell in cells) + f" {verdict}")
                if setting != plain:
                    ratios = [
                        (name, numbers(results.of(setting, name)).mean() / numbers(results.of(plain, name)).mean())
                        for name in ("epsilon", "ex_post_epsilon", "thin_slot")
                        if len(numbers(results.of(setting, name))) and len(numbers(results.of(plain, name)))
                    ]
                    print(" " * 43 + "of the plain one: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios))


def loss() -> None:
    """The loss of four notes under the mean of a slot of 63 others, for clips of both kinds."""
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
    print(f"{len(steps)} tokens, temperature {TEMPERATURE}; the model without a record: {-np.mean(alone):.3f}")
    for centred, clips in ((False, (6.0, 8.0, 10.0, 12.0)), (True, (1.0, 2.0, 3.0, 4.0, 6.0))):
        values = ", ".join(f"c = {clip:g}: {average(clip, centred=centred):.3f}" for clip in clips)
        print(f"{'centred' if centred else 'plain'}: {values}")
    for clip in (3.0, 4.0):
        for top_k in (1, 5, 20):
            size, lost, cut = kept(clip, top_k)
            print(
                f"centred, c = {clip:g}, top_k = {top_k}: {size:.1f} of {model.vocabulary_size} tokens are kept; "
                f"{lost:.4f} of the notes' tokens are not among them; the others had probability {cut:.5f}"
            )


def main() -> None:
    parser = runs.arguments(__doc__.splitlines()[0])
    parser.set_defaults(seeds=5, results=RESULTS)
    parser.add_argument("--loss", action="store_true", help="only the loss of one prediction")
    parser.add_argument(
        "--only", default="", metavar="BEGINNING", help='settings that begin so, such as "topics, mean"'
    )
    given = parser.parse_args()
    if given.loss:
        loss()
        return
    public = {
        "temperature": TEMPERATURE,
        "batch_size": 15 if given.quick else 63,
        "records": 64 if given.quick else 2048,
        "tokens": 24 if given.quick else 96,
    }
    results = runs.Results(given.results / ("centred_quick.json" if given.quick else "centred.json"), public)
    run_all(results, public, range(given.first, given.first + given.seeds), given.only)
    report(results)


if __name__ == "__main__":
    main()
