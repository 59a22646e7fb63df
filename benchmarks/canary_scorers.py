"""What n-grams and a fine-tuned language model show of generators without protection: ε at 100 echoes.

    python benchmarks/canary_scorers.py [--quick] [--repetitions N] [--results FILE]

Two generators run on notes with about half of the canaries among them: a language model that is fine-tuned on them
without noise, as two-stage fine-tuning does with its protection off, and private inference with ``aggregate: none``.
Each runs on canaries that end in random words and on those that the model continues at two temperatures, and both
scores look at each run. Today's ε is that of the n-gram score on random words. Every run is kept in the results as it
ends, so the same command resumes; a run with other sizes has other rows. Coins, canaries and the order of training
follow from the number of the repetition: this measures power, and bounds nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import one_thread  # noqa: F401

# isort: split
import numpy as np

import dpassay
from dpassay.accounting.adjacency import Unit
from dpassay.attacks.canaries.likelihood import ending_log_probabilities
from dpassay.attacks.canaries.texts import Echo, echo_log_probabilities
from dpassay.auditing.canaries.candidate import Canary
from dpassay.auditing.canaries.design import CanariesDesign
from dpassay.auditing.canaries.echo_scores import ModelScore, NGramScore
from dpassay.auditing.canaries.game import guessed_in
from dpassay.auditing.canaries.scorer import PlannedScorer
from dpassay.auditing.canaries.synthetic import SyntheticData
from dpassay.base.number_format import format_lower
from dpassay.base.private_files import write_atomically
from dpassay.data.corpora import notes
from dpassay.mechanisms.models.fine_tuning import Training, fine_tune
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.sampling import sampled

CANARIES = 100
GUESSES = (10, 25, 50)
"""Numbers of guesses, each of which is a plan of its own: the largest ε of several is no bound."""
GOAL = 1.5
"""How many times the ε of today's score the new one should show."""
RESULTS = Path(__file__).with_suffix(".json")
_TOKENS = 60  # of a text
_DRAWN = {"random words": None, "model at 1": 1.0, "model at 2": 2.0}


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        records: of the data, canaries not counted.
        texts: that a generator writes.
        epochs: of the generator's fine-tuning.
    """

    records: int
    texts: int
    epochs: int


FULL, QUICK = Size(records=400, texts=1000, epochs=10), Size(records=60, texts=120, epochs=4)


@dataclass
class Written:
    """Texts in place of a synthetic file."""

    held: Sequence[str]

    def step(self, done: int, total: int) -> None:
        """Shows nothing."""

    def some_texts(self) -> Sequence[str]:
        """All texts."""
        return self.held


def fine_tuned(model: LanguageModel, texts: Sequence[str], size: Size, seed: int) -> list[str]:
    """What a model writes that was fine-tuned on the texts without noise."""
    trained = fine_tune(model, texts, Training(epochs=size.epochs), seed=seed)
    start = [list(model.beginning_ids) or list(model.end_of_text_ids[:1])] * size.texts
    seeds = [seed * size.texts + number for number in range(size.texts)]
    written = sampled(trained, start, seeds, temperature=1.0, top_p=1.0, longest=_TOKENS, stop=None, rows=128)
    return [text for text, _ in written]


def private_inference(model: LanguageModel, texts: Sequence[str], size: Size, seed: int) -> list[str]:
    """What private inference writes with ``aggregate: none``."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data.jsonl")
        data.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        claim = dpassay.make_claim(
            {
                "name": "unprotected",
                "data": {"source": "file", "path": str(data), "text": "text"},
                "public": {"records": len(texts), "context_tokens": 100},
                "mechanism": "private_inference",
                "parameters": {
                    "aggregate": "none",
                    "clip": 10.0,
                    "temperature": 1.0,
                    "batch_size": 1,
                    "tokens": _TOKENS * max(1, size.texts // len(texts)),
                    "document_tokens": _TOKENS,
                },
                "guarantee": {"type": "pure_dp", "epsilon": 1.0},
            }
        )
        done = dpassay.generate(claim, Path(folder, "run"), device="cpu")
        return [json.loads(line)["text"] for line in done.documents_path.read_text().splitlines()]


GENERATORS: dict[str, Callable[[LanguageModel, Sequence[str], Size, int], list[str]]] = {
    "fine-tuning": fine_tuned,
    "private inference": private_inference,
}


def measured(model: LanguageModel, name: str, drawn: str, size: Size, seed: int) -> dict[str, Any]:
    """How many guesses are right by both scores in one run, and the ε that they show."""
    rng = np.random.default_rng([seed, len(drawn)])
    known = [text for text, _ in notes(2 * size.records, seed)]
    data, alike = known[: size.records], known[size.records :]
    temperature = _DRAWN[drawn]
    ngram, by_model = NGramScore(), ModelScore(PlannedScorer.of("builtin", temperature or 1.0))
    if temperature is None:
        every = ngram.draw(CANARIES, CANARIES // 4, alike, rng)
    else:
        every = by_model.draw(CANARIES, CANARIES // 4, alike, rng)
    coins = rng.random(CANARIES) < 0.5
    planted = [canary.text for canary, coin in zip(every, coins, strict=True) if coin]
    mixed = [*data, *planted]
    written = GENERATORS[name](model, [mixed[index] for index in rng.permutation(len(mixed))], size, seed)
    file = cast(SyntheticData, Written([text for text in written if text.strip()] or ["empty"]))
    references = {"ngram": _by_ngrams(every, alike), "model": ending_log_probabilities(model, _echoes(every))}
    shown: dict[str, Any] = {}
    for score in (ngram, by_model):
        plain, _ = score.likely(every, every[:1], file)
        shown[score.name] = {
            str(guesses): _epsilon(plain - references[score.name], coins, guesses) for guesses in GUESSES
        }
    return {"generator": name, "canaries": drawn, "seed": seed, **asdict(size), "texts_written": len(written)} | shown


def _echoes(every: Sequence[Canary]) -> list[Echo]:
    return [canary.echo for canary in every]


def _by_ngrams(every: Sequence[Canary], alike: Sequence[str]) -> Any:
    """Log-probabilities of endings by n-grams of other texts like the data, which hold no canary."""
    return echo_log_probabilities(alike, _echoes(every))[0]


def _epsilon(scores: Any, coins: Any, guesses: int) -> dict[str, float]:
    design = CanariesDesign(candidates=CANARIES, guesses=guesses, scorings=1, confidence=0.95, unit=Unit())
    right = int((guessed_in(scores, guesses) & coins).sum())
    return {"right": right, "epsilon": design.epsilon(guesses, right)}


def main() -> None:
    """Runs what is not yet in the results, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small data and few texts")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    rows: list[dict[str, Any]] = json.loads(given.results.read_text())["rows"] if given.results.exists() else []
    model = LanguageModel.load("builtin", "cpu", dtype="float32")
    for seed in range(given.repetitions):
        for name in GENERATORS:
            for drawn in _DRAWN:
                wanted = {"generator": name, "canaries": drawn, "seed": seed, **asdict(size)}
                if any(wanted.items() <= row.items() for row in rows):
                    continue
                rows.append(measured(model, name, drawn, size, seed))
                body = {"rows": rows, "tables": {"scorers": table(rows)}}
                write_atomically(given.results, json.dumps(body, indent=1, ensure_ascii=False) + "\n", 0o644)
                print(json.dumps(rows[-1]), flush=True)
    _print([row for row in rows if asdict(size).items() <= row.items() and row["seed"] < given.repetitions])


def table(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The table of the guide: the median ε of each generator, kind of endings and score, at the numbers of guesses, and
    the largest that so many guesses can show."""
    columns = [{"title": title, "key": title} for title in ("generator", "endings", "score")]
    columns += [{"title": f"{guesses} guesses", "key": str(guesses)} for guesses in GUESSES]
    shown = []
    for name in GENERATORS:
        for drawn in _DRAWN:
            some = [row for row in rows if row["generator"] == name and row["canaries"] == drawn]
            for score in ("ngram", "model") if some else ():
                medians = {
                    str(guesses): statistics.median(row[score][str(guesses)]["epsilon"] for row in some)
                    for guesses in GUESSES
                }
                words = {"generator": name, "endings": drawn, "score": {"ngram": "n-grams", "model": "model"}[score]}
                shown.append({**words, **{guesses: format_lower(value, 3) for guesses, value in medians.items()}})
    most = {
        str(guesses): format_lower(
            _epsilon(np.arange(CANARIES)[::-1], np.ones(CANARIES, dtype=bool), guesses)["epsilon"], 3
        )
        for guesses in GUESSES
    }
    return {
        "columns": columns,
        "rows": [*shown, {"generator": "*all guesses right*", "endings": "", "score": "", **most}],
    }


def _print(rows: Sequence[dict[str, Any]]) -> None:
    """The median ε of each generator, canaries and score, and what that is beside today's score."""
    for name in GENERATORS:
        for guesses in map(str, GUESSES):
            medians = {
                (drawn, score): statistics.median(
                    row[score][guesses]["epsilon"]
                    for row in rows
                    if row["generator"] == name and row["canaries"] == drawn
                )
                for drawn in _DRAWN
                for score in ("ngram", "model")
            }
            today = medians["random words", "ngram"]
            for (drawn, score), epsilon in medians.items():
                beside = f"{epsilon / today:.2f} times" if today else "no ratio to"
                print(f"{name}, {guesses} guesses, {drawn}, {score}: ε ≥ {epsilon:.3f}, {beside} today's {today:.3f}")
    print(f"Goal: {GOAL} times today's ε.")


if __name__ == "__main__":
    main()
