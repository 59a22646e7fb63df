"""Weights beside coins in secret-protected evolution: what is released of private records, and the texts that follow.

    python benchmarks/secret_weights.py [--quick] [--only clusters,texts] [--json out.json]

Made-up texts of the reproduction of secret-protected evolution, in two labels of four topics; a fifth of them hold
secrets. p = 10⁻⁴ and r/p = 2, 10 and 50. Both ways give a record the same share, as a probability or as a weight, so
both aim at the same sums. Where all shares are 1, as in the reproduction, where every secret is in four records of its
own, they are the same. So shares differ here:

- *uneven*: half of these records hold a secret of their own each, the others share secrets, twenty records each;
- *crowded*: each of 40 secrets is in each of these records with probability .05.

- ``clusters``: the root mean square error of what one release of T says of the private records, over that of saying
  nothing: noise, and for coins the draws. 1 or more is worth nothing.
- ``texts``: whole runs at T = 5, one a seed and setting. Fréchet distance, topics TV, the share in grammar, and of
  texts in the two small topics, as on the page of the reproduction; means, and ± the standard deviation over seeds.
  Seeds are the same for both, so texts start from the same.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import importlib
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from paired_times import Section, run_script

from dpassay.mechanisms.embedding.embedder import HashedNgrams
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.secret_evolution.clustering import NoisyClusters, PublicClusters, release

REPRODUCTION = Path(__file__).resolve().parents[1] / "docs" / "reproductions" / "secret_evolution"
WAYS: tuple[Literal["coins", "weights"], ...] = ("coins", "weights")
LAYOUTS = ("uneven", "crowded")
RATIOS = (2.0, 10.0, 50.0)
TINY = {"records": 300, "rounds": 2, "synthetic": 6, "variations": 1, "clusters": 4, "test": 100, "held_out": 50}


def reproduction() -> tuple[Any, Any]:
    """The modules of the reproduction that make corpora and runs, and that measure."""
    sys.path.append(str(REPRODUCTION))
    return importlib.import_module("evolutions"), importlib.import_module("utility")


def corpus(evolutions: Any, count: int, seed: int, layout: str) -> Any:
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


def clusters(draws: int) -> Section:
    """Errors of releases, by so many draws."""
    evolutions, utility = reproduction()
    section = Section(
        "clusters",
        "error of a release over that of saying nothing",
        ("secrets", "T", "r/p", *(f"{name}, {way}" for name in ("σ", "counts", "centres") for way in WAYS)),
    )
    for layout in LAYOUTS:
        texts = corpus(evolutions, utility.FULL["records"], 0, layout)
        for rounds in (1, 5, 10):
            for ratio in RATIOS:
                row = {
                    way: _error(evolutions, {**utility.FULL, "rounds": rounds}, texts, ratio, way, draws)
                    for way in WAYS
                }
                shown = [f"{row[way][key]:.3g}" for key in ("sigma", "counts", "centres") for way in WAYS]
                section.rows.append((layout, str(rounds), f"{ratio:g}", *shown))
                section.data[f"{layout}, T = {rounds}, r/p = {ratio:g}"] = row
    return section


def _error(evolutions: Any, size: Mapping[str, Any], made: Any, ratio: float, way: Any, draws: int) -> dict[str, float]:
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


MEASURES = {"frechet": "Fréchet", "topic_distance": "topics TV", "in_grammar": "in grammar", "small": "small topics"}


def texts(seeds: int) -> Section:
    """Utility of whole runs, over so many seeds; a tiny size for one seed."""
    evolutions, utility = reproduction()
    size = {**utility.FULL, **TINY} if seeds == 1 else dict(utility.FULL)
    model = LanguageModel.load(device="cpu")
    section = Section("texts", f"utility over {seeds} seeds", ("secrets", "r/p", "inclusion", "σ", *MEASURES.values()))
    for layout in LAYOUTS:
        for ratio in RATIOS:
            for way in WAYS:
                runs = [_run(evolutions, utility, size, layout, ratio, way, seed, model) for seed in range(seeds)]
                shown = [_spread([run[key] for run in runs]) for key in ("sigma", *MEASURES)]
                section.rows.append((layout, f"{ratio:g}", way, *shown))
                section.data[f"{layout}, r/p = {ratio:g}, {way}"] = runs
    return section


def _run(
    evolutions: Any, utility: Any, size: dict[str, Any], layout: str, ratio: float, way: str, seed: int, model: Any
) -> dict[str, Any]:
    """The measures of one run."""
    made = corpus(evolutions, size["records"], seed, layout)
    chosen = evolutions.secret_evolution(size, ratio * size["p"], inclusion=way)
    rows, result = evolutions.written(chosen, made.records, model, seed)
    found: dict[str, Any] = utility.measured(rows, made, size, seed)
    return {key: found[key] for key in MEASURES} | {"sigma": result.noise.sigma}


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


SECTIONS = {"clusters": (clusters, 20, 2), "texts": (texts, 5, 1)}
"""Name to what makes the section, its draws or seeds, and those with --quick, where the runs are tiny too."""


if __name__ == "__main__":
    sys.exit(run_script(SECTIONS, __doc__))
