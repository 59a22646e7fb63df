"""How echoes are scored: by n-grams of the synthetic text, or by a language model that is fine-tuned on it.

A score reads the synthetic text, the candidates and what the plan fixed; it never sees a coin, so that the bound holds
whatever the score (`docs/proofs/third-party-files.md`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpassay.attacks.canaries import texts
from dpassay.auditing.canaries.candidate import Canaries, Canary, Scores
from dpassay.auditing.canaries.scorer import PlannedScorer
from dpassay.base.arrays import Floats
from dpassay.base.progress import Progress

if TYPE_CHECKING:
    from dpassay.auditing.canaries.synthetic import SyntheticData


class EchoScore(ABC):
    """How echoes are scored, and which echoes suit that.

    Attributes:
        name: on the command line and in the manifest.
        attack: how a canary is scored, for reports.
        reference: the model whose log-probabilities are subtracted, in words.
        work: what takes most of the time of scoring, in a word.
    """

    name: ClassVar[str]
    attack: ClassVar[str]
    reference: ClassVar[str]
    work: ClassVar[str] = "Reading"

    def by(self, scorer: PlannedScorer | None) -> EchoScore:
        """This score by a planned language model, if it takes one."""
        return self

    def working(self, device: str, progress: Progress) -> EchoScore:
        """This score, whose model runs on a device and shows progress."""
        return self

    @abstractmethod
    def draw(self, count: int, spare: int, known: Sequence[str], rng: np.random.Generator) -> list[Canary]:
        """Draws echoes, all from one law, with their reference log-probabilities.

        Args:
            count: how many.
            spare: how many more may be drawn to fit a reference model; they are never planted.
            known: texts that they begin like.
            rng: source of the draw.

        Raises:
            ValueError: one line, if there are not enough.
        """

    @abstractmethod
    def likely(self, every: Canaries, planted: Canaries, file: SyntheticData) -> Scores:
        """The log-probability of each ending, in nats, given the file, and given the file and the planted canaries."""


class NGramScore(EchoScore):
    """By an n-gram model of bytes, which is counted in seconds and reads every text."""

    name = "ngram"
    attack = (
        "the log-probability of a canary's ending under an n-gram model of the synthetic text, less that under one of "
        "the data and of other such canaries; the highest are guessed to be in the data"
    )
    reference = "an n-gram model of the data"

    def draw(self, count: int, spare: int, known: Sequence[str], rng: np.random.Generator) -> list[Canary]:
        echoes = texts.draw_echoes(count + spare, known, rng)
        echoes, others = echoes[:count], [echo.text for echo in echoes[count:]]
        likely, _ = texts.echo_log_probabilities([*known, *others], echoes)
        return _canaries(echoes, likely.tolist())

    def likely(self, every: Canaries, planted: Canaries, file: SyntheticData) -> Scores:
        echoes, copies = [canary.echo for canary in every], [canary.text for canary in planted]
        return texts.echo_log_probabilities(file.some_texts(), echoes, copied=copies)


@dataclass(frozen=True)
class ModelScore(EchoScore):
    """By a language model that is fine-tuned on the synthetic text.

    Endings are written by the public model itself, which read no private text; it continues beginnings like those of
    the data. What it makes of an ending before it is fine-tuned is the reference.
    """

    scorer: PlannedScorer = PlannedScorer()  # noqa: RUF009 (frozen)
    device: str = "cpu"
    progress: Progress = field(default_factory=Progress)

    name = "model"
    attack = (
        "the log-probability of a canary's ending under a language model that was fine-tuned on the synthetic text, "
        "less that under the public model before; the highest are guessed to be in the data"
    )
    reference = "the public model of the plan"
    work = "Fine-tuning"

    def by(self, scorer: PlannedScorer | None) -> EchoScore:
        return self if scorer is None else replace(self, scorer=scorer)

    def working(self, device: str, progress: Progress) -> EchoScore:
        return replace(self, device=device, progress=progress)

    def draw(self, count: int, spare: int, known: Sequence[str], rng: np.random.Generator) -> list[Canary]:
        from dpassay.attacks.canaries.continuations import draw_continued
        from dpassay.attacks.canaries.likelihood import ending_log_probabilities

        model = self.scorer.load(self.device)
        with self.progress.stage("Drawing canaries") as step:
            echoes = draw_continued(model, count, known, self.scorer.temperature, rng, step)
        return _canaries(echoes, ending_log_probabilities(model, echoes).tolist())

    def likely(self, every: Canaries, planted: Canaries, file: SyntheticData) -> Scores:
        from dpassay.attacks.canaries.likelihood import ending_log_probabilities
        from dpassay.mechanisms.models.fine_tuning import fine_tune

        planned, echoes = self.scorer, [canary.echo for canary in every]
        step, file.step = file.step, lambda done, total: None  # reading takes little of the time that is shown
        synthetic = _some([text for text in file.some_texts() if text.strip()], planned)
        model = planned.load(self.device)

        def likely(texts: Sequence[str], before: int) -> Floats:
            def shown(done: int, total: int) -> None:
                step(before * total + done, 2 * total)

            trained = fine_tune(model, texts, planned.training, seed=planned.seed, progress=shown)
            return ending_log_probabilities(trained, echoes)

        return likely(synthetic, 0), likely([*synthetic, *(canary.text for canary in planted)], 1)


def _canaries(echoes: Sequence[texts.Echo], likely: Sequence[float]) -> list[Canary]:
    return [
        Canary(text=echo.text, start=echo.start, reference=value) for echo, value in zip(echoes, likely, strict=True)
    ]


def _some(known: Sequence[str], planned: PlannedScorer) -> list[str]:
    """All texts, or as many as the plan allows, drawn by its public seed and in the order in which they are."""
    if len(known) <= planned.texts:
        return list(known)
    chosen = np.random.default_rng(planned.seed).choice(len(known), size=planned.texts, replace=False)
    return [known[index] for index in np.sort(chosen)]
