"""`dpassay utility`: compares synthetic texts with real ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpassay.base import defaults
from dpassay.base.number_format import format_confidence, format_interval, format_number
from dpassay.cli.options import (
    Device,
    Download,
    Embedder,
    Json,
    Quiet,
    Seed,
    Synthetic,
    SyntheticText,
    call,
    with_fields,
)
from dpassay.data.chats import TEXTS, TextOptions

if TYPE_CHECKING:
    from dpassay.cli.table_console import Rows
    from dpassay.utility.measures import Utility
    from dpassay.utility.text_classifiers import Score


@with_fields
def utility(
    synthetic: Synthetic,
    real: Annotated[Path, typer.Option(help="File of the private texts that the generator saw.")],
    held_out: Annotated[
        Path | None, typer.Option(help="File of real texts that it did not see, with the same columns as --real.")
    ] = None,
    text: Annotated[str, typer.Option(help="Column of the text in real files.")] = "text",
    label: Annotated[
        str | None, typer.Option(help="Column of the label in real files; with it, classifiers are trained.")
    ] = None,
    synthetic_text: SyntheticText = "text",
    synthetic_label: Annotated[str, typer.Option(help="Column of the label in the synthetic file.")] = "label",
    embedder: Embedder = "builtin",
    device: Device = "auto",
    download: Download = False,
    mauve: Annotated[
        bool, typer.Option("--mauve", help="Also compute MAUVE, with the package mauve-text (GPL) of the extra mauve.")
    ] = False,
    mauve_buckets: Annotated[int, typer.Option(help="Number of clusters of MAUVE.")] = defaults.MAUVE_CLUSTERS,
    limit: Annotated[
        int,
        typer.Option(help="Largest number of texts used from each file, drawn uniformly; overlap uses all real texts."),
    ] = defaults.TEXTS,
    embedded: Annotated[
        int, typer.Option(help="Largest number of texts embedded from each file.")
    ] = defaults.EMBEDDED_TEXTS,
    seed: Seed = 0,
    reading: TextOptions = TEXTS,
    confidence: Annotated[float, typer.Option(help="Confidence of all intervals, in (0, 1).")] = defaults.CONFIDENCE,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="JSON file; private/utility.json by default.")
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measures how far synthetic texts are from real ones: embeddings, words, lengths, a classifier, overlap.

    Every number is computed from private data without noise, so it is private too: it goes to private/, is covered by
    no guarantee, and must not decide the parameters of a claimed run.
    """
    options = locals()
    from dpassay.base.private_results import output_file
    from dpassay.cli.table_console import show_measures
    from dpassay.utility import measures as job

    path = output_file(synthetic, output, job.NAME, (real, held_out))
    result = job.measure(synthetic, call(job.UtilitySettings, options, synthetic=None, output=None))
    tables = _embedding_rows(result), _side_rows(result), _overlap_rows(result), _classifier_rows(result)
    show_measures(result, tables, path, json_, quiet)


def _interval(ends: tuple[float, float] | None) -> str:
    return "–" if ends is None else format_interval(*ends)


def _embedding_rows(result: Utility) -> Rows:
    frechet, mauve = result.frechet, result.mauve
    confidence = f"interval, confidence {format_confidence(frechet.confidence)}"
    rows = [
        ["Fréchet distance", format_number(frechet.value), "", "0"],
        ["… of equal distributions", format_number(frechet.sampling_alone), "", ""],
        ["… bias taken off", format_number(frechet.corrected), _interval(frechet.interval), "0"],
    ]
    if mauve:
        rows.append([f"MAUVE, {mauve.buckets} buckets", format_number(mauve.value), "", "1"])
        rows.append(["MAUVE*, smoothed", format_number(mauve.smoothed), "", "1"])
    texts = f"{frechet.texts.synthetic} and {frechet.texts.real} texts"
    title = f"Embeddings of {texts} ({result.embedder.name}, {frechet.dimensions} dimensions)"
    return title, ["", "value", confidence, "alike"], rows


def _side_rows(result: Utility) -> Rows:
    rows = [["texts", str(result.synthetic.used), str(result.real.used), ""]]
    for row in result.diversity:
        distinct = row.distinct_at_same_size
        rows.append([f"distinct-{row.n}", format_number(distinct.synthetic), format_number(distinct.real), ""])
    for unit, lengths in (("words", result.lengths.words), ("characters", result.lengths.characters)):
        for quantile, name in ((0.05, "5 %"), (0.5, "median"), (0.95, "95 %")):
            sides = [format_number(side.quantiles[quantile]) for side in (lengths.synthetic, lengths.real)]
            rows.append([f"{unit}, {name}", *sides, ""])
        apart = f"W₁ {format_number(lengths.wasserstein_1)}, KS {format_number(lengths.kolmogorov_smirnov)}"
        rows.append([f"{unit}, distance", "", "", apart])
    return "Diversity at the same number of words, and lengths", ["", "synthetic", "real", "distance"], rows


def _overlap_rows(result: Utility) -> Rows:
    overlap, same = result.memorisation.real, result.memorisation.same_size
    sides = {f"{result.real.texts} seen": overlap}
    if same:
        sides |= {f"{same.texts} seen": same.real, f"{same.texts} not seen": same.held_out}
    rows = [
        ["same as a real text", *(format_number(of.exact_share) for of in sides.values())],
        ["at least half of the runs in real texts", *(format_number(of.near_share) for of in sides.values())],
        ["runs in real texts, mean share", *(format_number(of.mean_overlap) for of in sides.values())],
    ]
    for quantile, name in ((0.5, "median"), (0.95, "95 %"), (1.0, "largest")):
        longest = [format_number(of.longest_stretch_words[quantile]) for of in sides.values()]
        rows.append([f"longest stretch in words, {name}", *longest])
    return f"Synthetic texts among real ones, by runs of {overlap.run_words} words", ["", *sides], rows


def _classifier_rows(result: Utility) -> Rows | None:
    classifier = result.classifier
    if classifier is None:
        return None
    named = {
        "trained on synthetic": classifier.train_on_synthetic,
        "trained on real (ceiling)": classifier.train_on_real,
        "largest class (floor)": classifier.majority_class,
    }
    rows = [[name, _score(scores.accuracy), _score(scores.macro_f1)] for name, scores in named.items()]
    seen = "held-out texts" if classifier.tested_on == "held_out" else "texts set apart of the real file"
    title = f"Classifier of {classifier.labels} labels, tested on {classifier.texts.real_test} {seen}"
    return title, ["", "accuracy", "macro F1"], rows


def _score(score: Score) -> str:
    return f"{format_number(score.value)} in {_interval(score.interval)}"
