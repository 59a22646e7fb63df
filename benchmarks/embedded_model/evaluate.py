"""Measures the embedded model against its targets: in `benchmarks`, `python -m embedded_model.evaluate [FOLDER]`.

Every rate comes with its exact (Clopper-Pearson) 95% interval; documents are independent, one for each draw of
contexts. A target is met when the measured rate reaches it, or a test does not reject at 1% (a flawless model fails
each of the twelve tests at another seed with probability at most 1%). Exits with 1 if a target is missed.
"""

import pathlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from dpassay.data import corpora
from dpassay.mechanisms.models.embedded import path
from embedded_model import corpus
from embedded_model.grammar import TOPICS
from embedded_model.measure import Decoding, documents, load

SEED = 20260
MEDIAN_CLIP = 10.0
KEY = re.compile(re.escape(corpora.KEY_PREFIX) + r"\d{5}")


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        what: What is measured.
        measured: The value, as text.
        n: Number of trials, as text.
        target: The target, as text.
        met: Whether the target is met; None where there is none.
    """

    what: str
    measured: str
    n: str = ""
    target: str = ""
    met: bool | None = None


def rate(what: str, hits: Sequence[bool], at_least: float | None = None) -> Row:
    """A proportion with its exact 95% interval."""
    k, n = sum(hits), len(hits)
    interval = stats.binomtest(k, n).proportion_ci(0.95, "exact")
    measured = f"{k / n:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
    if at_least is None:
        return Row(what, measured, str(n))
    return Row(what, measured, str(n), f">= {at_least:.2f}", k / n >= at_least)


def limit(what: str, value: float, at_most: float) -> Row:
    """A quantity with an upper limit."""
    return Row(what, f"{value:.0f}", "", f"<= {at_most:.0f}", value <= at_most)


def not_rejected(what: str, measured: str, p: float, n: int) -> Row:
    """A test whose hypothesis must not be rejected at 1%."""
    return Row(what, measured, str(n), "p >= 0.01", bool(p >= 0.01))


class Bench:
    """The model under measurement and the contexts it is shown."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Loads the folder's model."""
        self.folder = folder
        self.model: PreTrainedModel
        self.tokenizer: PreTrainedTokenizerBase
        self.model, self.tokenizer = load(folder)
        self.rng = np.random.default_rng(SEED)

    def write(self, records: Sequence[str], decoding: Decoding, prefix: str = "") -> list[str]:
        """Documents from contexts of one record each."""
        seed = int(self.rng.integers(2**31))
        return documents(self.model, self.tokenizer, [[r] for r in records], decoding, seed, prefix=prefix)

    def size(self) -> list[Row]:
        """Parameters and bytes."""
        parameters = sum(p.numel() for p in self.model.parameters())
        weights = (self.folder / "model.safetensors").stat().st_size
        return [limit("parameters", parameters, 1_000_000), limit("bytes of weights", weights, 2_000_000)]

    def copying(self) -> list[Row]:
        """Copies of a secret in one context."""

        def copied(wordings: Sequence[str], secret: Callable[[], str], n: int, decoding: Decoding) -> list[bool]:
            secrets = [secret() for _ in range(n)]
            written = self.write(
                [wordings[i % len(wordings)].replace("{x}", s) for i, s in enumerate(secrets)], decoding
            )
            return [
                re.search(rf"(?<!\d){re.escape(s)}(?!\d)", text) is not None
                for s, text in zip(secrets, written, strict=True)
            ]

        def digits() -> str:
            return f"{self.rng.integers(100_000):05d}"

        def unseen() -> str:
            return corpus.unseen_secret(self.rng)

        sampled, clipped = Decoding(), Decoding(1.2, MEDIAN_CLIP)
        new, audit = corpus.held_out_wordings(), (corpora.KEY_PREFIX + "{x}",)
        return [
            rate("copy, unseen wording, tau=1", copied(new, digits, 1500, sampled), 0.95),
            rate("copy, unseen wording, c=10 tau=1.2", copied(new, digits, 1500, clipped), 0.90),
            rate("copy, unseen wording, greedy", copied(new, digits, 1000, Decoding(0.0))),
            rate("copy, unseen wording and format, tau=1", copied(new, unseen, 1000, sampled)),
            rate("copy, unseen wording and format, c=10 tau=1.2", copied(new, unseen, 1000, clipped)),
            rate("copy, audit wording, tau=1", copied(audit, digits, 1500, sampled)),
            rate("copy, audit wording, c=10 tau=1.2", copied(audit, digits, 1500, clipped)),
        ]

    def topics(self) -> list[Row]:
        """Topical documents: single contexts and medians over documents of one topic."""

        def judged(groups: int, decoding: Decoding) -> list[bool]:
            topics = [str(t) for t in self.rng.choice(sorted(TOPICS), size=groups)]
            shown = [corpus.topical_document(t, self.rng) for t in topics for _ in range(decoding.group)]
            return [corpus.topic_of(d) == t for d, t in zip(self.write(shown, decoding), topics, strict=True)]

        rows = [rate("topic, single, tau=1", judged(1000, Decoding()), 0.85)]
        for group in (15, 63):
            for temperature in (1.0, 1.2):
                hits = judged(200, Decoding(temperature, MEDIAN_CLIP, group))
                target = 0.80 if temperature == 1.0 else None
                rows.append(rate(f"topic, median B={group}, c=10 tau={temperature}", hits, target))
        return rows

    def keys(self) -> list[Row]:
        """Medians over contexts that each hold a different key."""
        rows: list[Row] = []
        for group, temperature in ((15, 1.0), (15, 1.2), (63, 1.0), (63, 1.2)):
            name = f"keys, median B={group}, c=10 tau={temperature}"
            n = 250
            every = [corpora.keys(2 * group, int(self.rng.integers(2**31))) for _ in range(n)]
            sources, holdouts = [k[:group] for k in every], [k[group:] for k in every]
            decoding = Decoding(temperature, MEDIAN_CLIP, group)
            written = self.write([r for s in sources for r in s], decoding)
            well = [KEY.fullmatch(d) is not None for d in written]
            rows.append(rate(f"{name}: well-formed", well, 0.85))
            digits = np.array([int(c) for d, ok in zip(written, well, strict=True) if ok for c in d[-5:]])
            uniform = stats.chisquare(np.bincount(digits, minlength=10)).pvalue
            rows.append(not_rejected(f"{name}: digits uniform", f"p = {uniform:.3f}", uniform, digits.size))
            for what, width in (("source / holdout hits", 5), ("first 3 digits of source / holdout", 3)):
                end = len(corpora.KEY_PREFIX) + width
                hits, misses = (
                    sum(d[:end] in {k[:end] for k in shown} for d, shown in zip(written, side, strict=True))
                    for side in (sources, holdouts)
                )
                p = stats.binomtest(hits, hits + misses, 0.5, "greater").pvalue if hits + misses else 1.0
                rows.append(not_rejected(f"{name}: {what}", f"{hits} / {misses}, p = {p:.3f}", p, n))
        return rows

    def notes(self) -> list[Row]:
        """Medians over notes of the RAND Health Insurance Experiment."""
        rows: list[Row] = []
        for group, temperature, n in ((1, 1.0, 400), (15, 1.0, 150), (63, 1.0, 150), (63, 1.2, 150)):
            shown = [text for text, _ in corpora.notes(group * n, int(self.rng.integers(2**31)))]
            decoding = Decoding(temperature, None if group == 1 else MEDIAN_CLIP, group)
            name = "notes, single, tau=1" if group == 1 else f"notes, median B={group}, c=10 tau={temperature}"
            well = [corpora.well_formed_note(d) for d in self.write(shown, decoding)]
            rows.append(rate(f"{name}: well-formed", well, 0.80 if group == 63 else None))
        return rows


def main() -> int:
    """Prints the table; 1 if a target is missed."""
    began = time.monotonic()
    bench = Bench(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else path())
    print(f"{'':68}{'measured [95% interval]':28}{'n':>6}  {'target':10} met")
    missed = False
    for part in (bench.size, bench.copying, bench.topics, bench.keys, bench.notes):
        for row in part():
            met = "" if row.met is None else "yes" if row.met else "NO"
            print(f"{row.what:68}{row.measured:28}{row.n:>6}  {row.target:10} {met}", flush=True)
            missed |= row.met is False
    print(f"{time.monotonic() - began:.0f} s")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
