"""Weights beside coins in secret-protected evolution: what is released of private records, and the texts that follow.

    python benchmarks/secret_weights.py [--seeds 5] [--quick] [--results FOLDER] [--only releases]

Made-up texts of the reproduction of secret-protected evolution, in two labels of four topics; a fifth of them hold
secrets. p = 10⁻⁴ and r/p = 2, 10 and 50. Both ways give a record the same share, as a probability or as a weight, so
both aim at the same sums. Where all shares are 1, as in the reproduction, where every secret is in four records of its
own, they are the same. So shares differ here:

- *uneven*: half of these records hold a secret of their own each, the others share secrets, twenty records each;
- *crowded*: each of 40 secrets is in each of these records with probability .05.

- ``releases``: the root mean square error of what one release of T says of the private records, over that of saying
  nothing: noise, and for coins the draws. 1 or more is worth nothing. One corpus, twenty releases.
- ``texts``: whole runs at T = 5, one a seed and setting. Fréchet distance, topics TV, the share in grammar, and of
  texts in the two small topics, as on the page of the reproduction. Seeds are the same for both, so texts start from
  the same. Finished runs are kept beside this file and not done again.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import importlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpassay.mechanisms.embedding.embedder import HashedNgrams
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.secret_evolution.clustering import NoisyClusters, PublicClusters, release

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs" / "reproductions" / "secret_evolution"))

shared, evolutions, utility = (importlib.import_module(name) for name in ("shared", "evolutions", "utility"))
runs, tables = shared.runs, importlib.import_module("tables")

WAYS: tuple[Literal["coins", "weights"], ...] = ("coins", "weights")
LAYOUTS = ("uneven", "crowded")
RATIOS = (2.0, 10.0, 50.0)
ROUNDS = (1, 5, 10)
DRAWS = 20
TINY = {"records": 300, "rounds": 2, "synthetic": 6, "variations": 1, "clusters": 4, "test": 100, "held_out": 50}


def corpus(count: int, seed: int, layout: str) -> Any:
    """Made-up texts of which a fifth hold secrets, as an `evolutions.Corpus`."""
    rows = evolutions.data.topical(count, seed)
    rng = np.random.default_rng([seed, 11])
    holders = rng.choice(count, size=count // 5, replace=False)
    half = len(holders) // 2
    if layout == "uneven":
        secrets = [[place] for place in range(half)] + [
            [half + (place - half) // 20] for place in range(half, len(holders))
        ]
    else:
        held = rng.random((len(holders), 40)) < 0.05
        secrets = [np.flatnonzero(row).tolist() for row in held]
    codes = rng.choice(100_000, size=len(holders) + 40, replace=False)
    marked = [text for text, _ in rows]
    for holder, its in zip(holders, secrets, strict=True):
        marked[holder] += "".join(f" (ref {codes[secret]:05d})" for secret in its)
    records = evolutions.data.records([(text, label) for text, (_, label) in zip(marked, rows, strict=True)])
    _, occurrences = np.unique([secret for its in secrets for secret in its], return_counts=True)
    return evolutions.Corpus(rows, records, int(occurrences.max()))


def numbers(noisy: NoisyClusters, clusters: PublicClusters) -> np.ndarray:
    """The noisy counts and sums of a release, as they were before sizes and centres were made of them."""
    moved = (noisy.centres - clusters.vectors) * np.maximum(clusters.sizes, noisy.sizes)[:, None]
    return np.concatenate([noisy.sizes - clusters.sizes, moved.ravel() / (2 * clusters.radius)])


def error_of(size: Mapping[str, Any], made: Any, ratio: float, way: Any, draws: int) -> dict[str, float]:
    """Noise, and relative errors of counts and of sums, over all labels together as one."""
    chosen = replace(evolutions.secret_evolution(size, ratio * size["p"]), inclusion=way, labels=())
    places = chosen.incidence(made.records)
    noise = chosen.noise(places)
    texts = [record.text for record in made.records]
    vectors = HashedNgrams().embed(texts)
    public = PublicClusters.fit(vectors[~places.private], 2 * size["clusters"], seed=0)
    private, shares = vectors[places.private], noise.probabilities[places.private]
    silent, source = Recorded(0), Recorded(1)
    wanted = numbers(release(public, private, shares, 0.0, silent, inclusion="weights"), public)
    got = [numbers(release(public, private, shares, noise.sigma, source, inclusion=way), public) for _ in range(draws)]
    squares = np.mean([np.square(each - wanted) for each in got], axis=0)
    count = public.count
    return {
        "sigma": noise.sigma,
        "counts": float(np.sqrt(squares[:count].sum() / np.square(wanted[:count]).sum())),
        "centres": float(np.sqrt(squares[count:].sum() / np.square(wanted[count:]).sum())),
    }


def run_releases(results: Any) -> None:
    """Errors of releases that are missing."""
    size = results.parameters
    for layout in LAYOUTS:
        made = None
        for rounds in ROUNDS:
            for ratio in RATIOS:
                for way in WAYS:
                    setting = f"release, {layout}, T = {rounds}, r/p = {ratio:g}, {way}"
                    if results.missing(setting, 0):
                        made = made or corpus(size["records"], 0, layout)
                        results.add(setting, 0, **error_of({**size, "rounds": rounds}, made, ratio, way, DRAWS))


MEASURES = {
    "frechet": "Fréchet ↓",
    "topic_distance": "topics TV ↓",
    "in_grammar": "in grammar",
    "small": "small topics",
}


def run_texts(results: Any, seeds: Iterable[int]) -> None:
    """Whole runs that are missing."""
    size, model = dict(results.parameters), LanguageModel.load(device="cpu")
    for seed in seeds:
        for layout in LAYOUTS:
            for ratio in RATIOS:
                for way in WAYS:
                    setting = f"texts, {layout}, r/p = {ratio:g}, {way}"
                    if results.missing(setting, seed):
                        made = corpus(size["records"], seed, layout)
                        chosen = evolutions.secret_evolution(size, ratio * size["p"], inclusion=way)
                        rows, result = evolutions.written(chosen, made.records, model, seed)
                        found = utility.measured(rows, made, size, seed)
                        results.add(setting, seed, sigma=result.noise.sigma, **{key: found[key] for key in MEASURES})


def tables_of(results: Any) -> dict[str, Any]:
    """Errors of releases, and utility of texts with the differences, seed by seed."""
    return {"weights_releases": releases_table(results), "weights_texts": texts_table(results)}


def releases_table(results: Any) -> dict[str, Any]:
    titles = {"layout": "secrets", "rounds": "releases", "ratio": "r/p"}
    titles |= {f"{key} {way}": f"{key}, {way}" for key in ("σ", "counts", "centres") for way in WAYS}
    rows = []
    for layout in LAYOUTS:
        for rounds in ROUNDS:
            for ratio in RATIOS:
                row: dict[str, Any] = {"layout": layout, "rounds": rounds, "ratio": f"{ratio:g}"}
                for way in WAYS:
                    setting = f"release, {layout}, T = {rounds}, r/p = {ratio:g}, {way}"
                    for key in ("sigma", "counts", "centres"):
                        row[f"{'σ' if key == 'sigma' else key} {way}"] = tables.interval(results.of(setting, key))
                rows.append(row)
    made: dict[str, Any] = tables.table(titles, rows, **dict.fromkeys(titles, 2))
    return made


def texts_table(results: Any) -> dict[str, Any]:
    titles = {"layout": "secrets", "ratio": "r/p", "way": "inclusion", "sigma": "σ", **MEASURES}
    rows = []
    for layout in LAYOUTS:
        for ratio in RATIOS:
            settings = [f"texts, {layout}, r/p = {ratio:g}, {way}" for way in WAYS]
            for way, setting in zip(WAYS, settings, strict=True):
                cells = {key: tables.interval(results.of(setting, key)) for key in ("sigma", *MEASURES)}
                rows.append({"layout": layout, "ratio": f"{ratio:g}", "way": way, **cells})
            apart = {
                key: tables.interval(
                    [second - first for first, second in zip(*(results.of(of, key) for of in settings), strict=False)]
                )
                for key in MEASURES
            }
            rows.append({"layout": layout, "ratio": f"{ratio:g}", "way": "weights − coins", **apart})
    made: dict[str, Any] = tables.table(titles, rows, **dict.fromkeys(("sigma", *MEASURES), 2))
    return made


def main() -> None:
    parser = runs.arguments(__doc__.splitlines()[0])
    parser.set_defaults(seeds=5, results=Path(__file__).parent)
    parser.add_argument("--only", choices=("releases", "texts"), help="one of the two")
    given = parser.parse_args()
    name, size = "secret_weights", {key: value for key, value in utility.FULL.items() if key != "ratios"}
    if given.quick:
        name, size = "secret_weights_quick", size | TINY
    results = runs.Results(given.results / f"{name}.json", size)
    try:
        if given.only != "texts":
            run_releases(results)
        if given.only != "releases":
            run_texts(results, range(given.first, given.first + given.seeds))
    finally:
        tables.keep(results, tables_of(results))


if __name__ == "__main__":
    main()
