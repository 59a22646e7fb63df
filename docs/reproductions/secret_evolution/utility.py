"""Tables 3 to 5: utility against r/p of secret-protected evolution and of Aug-PE.

    python docs/reproductions/secret_evolution/utility.py [--seeds 3] [--first 0] [--quick] [--results FOLDER]

Aug-PE gets the noise of μ-GDP for one record (`record`), as the paper has it, or for all records of one secret
(`group`), which is what protects the secret.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evolutions import Corpus, Layout, aug_pe, corpus, secret_evolution, writer_of, written
from shared import arguments, data, measures, runs

from dpassay.accounting.secret_protection.conversions import mu_for
from dpassay.mechanisms.models.language_model import LanguageModel

FULL = {
    "records": 2000,
    "p": 1e-4,
    "ratios": [2, 10, 50],
    "rounds": 5,
    "synthetic": 60,
    "variations": 3,
    "clusters": 16,
    "test": 1000,
    "held_out": 200,
}
QUICK = FULL | {"records": 300, "ratios": [10], "rounds": 2, "synthetic": 12, "variations": 2, "clusters": 4}
LAYOUTS: tuple[Layout, ...] = ("scattered", "small topics")


@dataclass(frozen=True)
class Setting:
    """One line of the table. `ratio` is r/p; None stands for no protection."""

    method: str
    layout: Layout
    ratio: float | None

    @property
    def name(self) -> str:
        return f"{self.method}, {self.layout}, r/p = {shown(self.ratio)}"


def shown(ratio: float | None) -> str:
    return "∞" if ratio is None else f"{ratio:g}"


def settings(size: dict[str, Any]) -> Iterator[Setting]:
    """All lines."""
    for layout in LAYOUTS:
        for method in ("SecPE", "SecPE, one release"):
            for ratio in (*map(float, size["ratios"]), None):
                if method == "SecPE" or ratio is not None:
                    yield Setting(method, layout, ratio)
        for method in ("Aug-PE, record", "Aug-PE, group"):
            for ratio in (*map(float, size["ratios"]), None):
                if ratio is not None or method == "Aug-PE, record":
                    yield Setting(method, layout, ratio)


def one(setting: Setting, size: dict[str, Any], seed: int, model: LanguageModel) -> dict[str, Any]:
    """The numbers of one run."""
    texts = corpus(size["records"], seed, setting.layout)
    start = time.perf_counter()
    if setting.method.startswith("SecPE"):
        r = 1.0 if setting.ratio is None else setting.ratio * size["p"]
        releases = "once" if setting.method.endswith("one release") else "every_round"
        rows, result = written(secret_evolution(size, r, releases=releases), texts.records, model, seed)
        sigma, drawn = result.noise.sigma, result.noise.expected_sample
    else:
        units = texts.most if setting.method.endswith("group") else 1
        r = setting.ratio and setting.ratio * size["p"]
        sigma = units * math.sqrt(size["rounds"]) / mu_for(size["p"], r) if r else 0.0
        rows, _ = written(aug_pe(size, sigma), texts.records, model, seed)
        drawn = float(size["records"])
    seconds = time.perf_counter() - start
    found = measured(rows, texts, size, seed)
    return found | {"sigma": sigma, "drawn": drawn, "seconds": seconds}


def measured(rows: list[tuple[str, str]], texts: Corpus, size: dict[str, Any], seed: int) -> dict[str, Any]:
    """Utility beside the records without their secrets, and the share of texts in the small topics."""
    test = data.topical(size["held_out"] + size["test"], seed, "held out")[size["held_out"] :]
    found = measures.utility(rows, texts.rows, test, seed)
    small = {topics[-1] for topics in data.TOPICS_OF.values()}
    topics = found["topics"]
    return found | {"small": sum(topics.get(topic, 0) for topic in small) / len(rows)}


def baselines(size: dict[str, Any], seed: int, model: LanguageModel) -> Iterator[tuple[str, dict[str, Any]]]:
    """Real texts that no generator saw, and the random texts that every evolution begins with."""
    texts = corpus(size["records"], seed, "scattered")
    held_out = data.topical(size["held_out"] + size["test"], seed, "held out")[: size["held_out"]]
    yield "real texts", measured(held_out, texts, size, seed)
    writer, random = writer_of(model, seed), []
    for place, label in enumerate(data.LABELS):
        seeds = range(place * size["synthetic"], (place + 1) * size["synthetic"])
        random += [(text, label) for text in writer.random(label, seeds) if text]
    yield "random texts", measured(random, texts, size, seed)


COLUMNS = [
    {"title": "secrets", "key": "layout"},
    {"title": "method", "key": "method"},
    {"title": "r/p", "key": "ratio"},
    {"title": "σ", "key": "sigma", "digits": 1},
    {"title": "records drawn", "key": "drawn", "digits": 0},
    *(column for column in measures.COLUMNS if column["key"] not in ("documents", "mauve", "distinct_2")),
    {"title": "in small topics", "key": "small"},
]
KEYS = ("sigma", "drawn", "frechet", "topic_distance", "recognised_distance", "in_grammar", "accuracy", "small")


def table(results: runs.Results, size: dict[str, Any]) -> dict[str, Any]:
    """Real texts, random texts, and all settings."""
    rows = []
    for name in ("real texts", "random texts"):
        row: dict[str, Any] = {"layout": "–", "method": name, "ratio": "–"}
        rows.append(row | {key: results.of(name, key) for key in KEYS[2:]})
    for setting in settings(size):
        row = {"layout": setting.layout, "method": setting.method, "ratio": shown(setting.ratio)}
        rows.append(row | {key: results.of(setting.name, key) for key in KEYS})
    return {"columns": COLUMNS, "rows": rows}


def main() -> int:
    options = arguments("Tables 3 to 5: utility of secret-protected evolution and Aug-PE.").parse_args()
    size = QUICK if options.quick else FULL
    results = runs.Results(options.results / "utility.json", size)
    model = LanguageModel.load(device="cpu")
    for seed in range(options.first, options.first + options.seeds):
        if results.missing("real texts", seed):
            for name, found in baselines(size, seed, model):
                results.add(name, seed, **found)
        for setting in settings(size):
            if results.missing(setting.name, seed):
                results.add(setting.name, seed, **one(setting, size, seed, model))
        results.tables = {"utility": table(results, size)}
        results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
