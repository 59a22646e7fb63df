"""Tables 1 and 2: what vectors and shots add, at ε = 5, 3 and without noise.

    python docs/reproductions/dataset_vectors/utility.py [--seeds 5] [--first 0] [--quick] [--results FOLDER]

Every arm writes the same number of texts with the same seeds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

from shared import arguments, runs
from steered import RANDOM, SIZE, Released, difference, measured, notes, released, seeds, writer_of

from dpassay.mechanisms.dataset_vectors import rejection
from dpassay.mechanisms.models.language_model import LanguageModel

FULL = SIZE | {"epsilons": [5.0, 3.0, None]}
QUICK = FULL | {"records": 60, "texts": 6, "candidates": 4, "negatives": 6, "longest": 16, "epsilons": [5.0]}
BASE = "zero-shot"
WITHOUT = {
    "zero-shot + vectors": BASE,
    "chosen shots + vectors": "chosen shots",
    "the same, filtered": "chosen shots",
    "random shots + vectors": "random shots",
}
"""Arm with vectors → the arm without them."""


def shown(epsilon: float | None) -> str:
    return "∞" if epsilon is None else f"{epsilon:g}"


def arms(size: dict[str, Any]) -> list[tuple[str, str]]:
    """(arm, ε) in the order of the table."""
    found = [("other real notes", "–"), (BASE, "0"), ("real shots", "∞"), ("random shots", "0")]
    for epsilon in map(shown, size["epsilons"]):
        names = ("chosen shots", "zero-shot + vectors", "chosen shots + vectors", "the same, filtered")
        found += [(name, epsilon) for name in names]
    return [*found, ("random shots + vectors", shown(size["epsilons"][0]))]


def texts_of(size: dict[str, Any], seed: int, model: LanguageModel) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """The texts of every arm."""
    records, others = notes(size, seed)
    count, beta, writer = size["texts"], size["coefficient"], writer_of(model, size)

    def plain(shots: list[str], most: int) -> list[str]:
        return [text for text, _ in writer.texts(writer.prompt(None, shots, most), seeds(count, seed))]

    yield ("other real notes", "–"), [record.text for record in others]
    yield (BASE, "0"), plain([], 0)
    yield ("real shots", "∞"), plain([record.text for record in others[:2]], 2)
    for epsilon in size["epsilons"]:
        given: dict[str, Any] = {"epsilon": math.inf if epsilon is None else epsilon}
        alone = released(model, records, size, seed, shots=0, **given)
        yield ("zero-shot + vectors", shown(epsilon)), alone.steered(count, seed, beta)
        both = released(model, records, size, seed, **given)
        yield ("chosen shots", shown(epsilon)), both.plain(count, seed)
        yield ("chosen shots + vectors", shown(epsilon)), both.steered(count, seed, beta)
        yield ("the same, filtered", shown(epsilon)), filtered(both, count, seed, beta)
    epsilon = size["epsilons"][0]
    unchosen = released(model, records, size, seed, epsilon=math.inf if epsilon is None else epsilon, votes=RANDOM)
    yield ("random shots", "0"), unchosen.plain(count, seed)
    yield ("random shots + vectors", shown(epsilon)), unchosen.steered(count, seed, beta)


def filtered(run: Released, count: int, seed: int, beta: float) -> list[str]:
    """Texts that the default filter accepts: a fifth more are written, and as many as elsewhere are kept."""
    references = run.plain(rejection.REFERENCES, seed + 1000)
    threshold = rejection.default_threshold(run.writer, run.prompt, references)
    accepts = rejection.by_perplexity(run.writer, run.prompt, threshold)
    return run.steered(count + count // 5, seed, beta, accepts=accepts)[:count]


COLUMNS = [
    {"title": "arm", "key": "arm"},
    {"title": "ε", "key": "epsilon"},
    {"title": "Fréchet", "key": "frechet"},
    {"title": "less zero-shot (95%)", "key": "less"},
    {"title": "less the same without vectors", "key": "added"},
    {"title": "MAUVE", "key": "mauve"},
    {"title": "in grammar", "key": "in_grammar", "digits": 2},
    {"title": "distinct-2", "key": "distinct_2", "digits": 2},
]


def table(results: runs.Results, size: dict[str, Any]) -> dict[str, Any]:
    """A row an arm."""
    base = results.of(f"{BASE}, ε = 0", "frechet")
    rows = []
    for arm, epsilon in arms(size):
        name = f"{arm}, ε = {epsilon}"
        row = {"arm": arm, "epsilon": epsilon} | {
            key: results.of(name, key) for key in ("frechet", "mauve", "in_grammar", "distinct_2")
        }
        row["less"] = None if arm == BASE else difference(row["frechet"], base)
        if without := WITHOUT.get(arm):
            before = results.of(f"{without}, ε = {'0' if without in (BASE, 'random shots') else epsilon}", "frechet")
            row["added"] = difference(row["frechet"], before)
        rows.append(row)
    return {"columns": COLUMNS, "rows": rows}


def main() -> int:
    options = arguments("Tables 1 and 2: vectors and shots.").parse_args()
    size = QUICK if options.quick else FULL
    results = runs.Results(options.results / "utility.json", size)
    model = LanguageModel.load(device="cpu")
    for seed in range(options.first, options.first + options.seeds):
        if any(results.missing(f"{arm}, ε = {epsilon}", seed) for arm, epsilon in arms(size)):
            records, _ = notes(size, seed)
            for (arm, epsilon), texts in texts_of(size, seed, model):
                results.add(f"{arm}, ε = {epsilon}", seed, **measured(texts, records, seed))
        results.tables = {"utility": table(results, size)}
        results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
