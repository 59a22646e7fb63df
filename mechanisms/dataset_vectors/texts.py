"""Texts that a language model writes after a prompt with shots, with or without steering, and their tokens.

Nothing here is private but the record that `tokens_of` is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from dpassay.base import validate
from dpassay.mechanisms.dataset_vectors.steering import SteeredRows, Steering, Where
from dpassay.mechanisms.models.prompts import FENCE, INSTRUCTION, PRETRAINED, Prompt
from dpassay.mechanisms.models.sampling import sampled

if TYPE_CHECKING:
    from dpassay.mechanisms.dataset_vectors.states import Tokens
    from dpassay.mechanisms.models.language_model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class ShotWriter:
    """Writes texts with a local language model, after a prompt with shots.

    Attributes:
        model: any.
        template: of the prompt (`mechanisms.models.prompts`); None for the model's default.
        stop: a string that ends a text, in addition to end-of-text; by default the fence of ``pretrained``.
        temperature: of sampling; 0 takes the most likely token.
        top_p: the probability mass to sample from, most likely tokens first, in (0, 1].
        top_k: the number of most likely tokens to sample from; 0 for all.
        longest: the largest number of tokens of a text.
        longest_record: the largest number of tokens of a record or shot; longer ones are cut.
        rows: number of texts in a batch; it does not affect the texts.
    """

    model: LanguageModel = field(repr=False)
    template: str | None = None
    stop: str | None = None
    temperature: float = 1.6
    top_p: float = 1.0
    top_k: int = 0
    longest: int = 512
    longest_record: int = 800
    rows: int = 64

    def __post_init__(self) -> None:
        validate.non_negative(temperature=self.temperature)
        if validate.probability(top_p=self.top_p) == 0:
            raise ValueError("top_p must be above 0 and at most 1, not 0")
        validate.integer(minimum=0, top_k=self.top_k)
        for name in ("longest", "longest_record", "rows"):
            validate.integer(minimum=1, **{name: getattr(self, name)})

    @property
    def _named(self) -> str | None:
        return self.template or (None if self.model.is_builtin else PRETRAINED)

    def prompt(self, label: str | None, shots: Sequence[str], most_shots: int) -> list[int]:
        """The tokens before a text.

        Args:
            label: public.
            shots: public texts; fewer than `most_shots`, or none, are fine.
            most_shots: for which the prompt must have room.

        Raises:
            ValueError: if prompt, record and text do not fit into the model's positions.
        """
        most = max(1, most_shots)
        empty = Prompt(self.model, self._named, label, "", most, self.model.context_length)
        room = empty.overhead + most * self.longest_record if most_shots else empty.overhead + self.longest_record
        needed = room + max(self.longest, self.longest_record)
        if needed > self.model.context_length:
            raise ValueError(
                f"{most_shots} shots and a record of {self.longest_record} tokens, the template and a text of "
                f"{self.longest} need {needed} positions, but the model has {self.model.context_length}; lower "
                "longest_record, longest or shots"
            )
        return Prompt(self.model, self._named, label, "", most, room).context(list(shots), self.longest_record)

    def tokens_of(self, prompt: Sequence[int], text: str, *, whole: bool) -> Tokens:
        """A text with the prompt before it: all tokens, and the first index of those that its states are a mean over.

        A function of the prompt and this text alone. A text without tokens is an end of text.

        Args:
            prompt: of `prompt`.
            text: a record or a negative; private if it is a record.
            whole: whether the prompt's tokens count, too.
        """
        own = self.model.encode(text)[: self.longest_record] or list(self.model.end_of_text_ids[:1]) or [0]
        return [*prompt, *own], 0 if whole else len(prompt)

    def texts(
        self,
        prompt: Sequence[int],
        seeds: Sequence[int],
        *,
        vectors: Mapping[int, ArrayLike] | None = None,
        where: Where = "last",
    ) -> Iterator[tuple[str, bool]]:
        """One text for each seed, in order, and whether it ended by itself.

        Args:
            prompt: of `prompt`.
            seeds: public.
            vectors: what is added to the output of each block; None for none.
            where: ``last`` or ``all`` (`steering`).
        """
        network, steering = self.model.network, None
        if vectors is not None:
            steering = Steering(network, vectors, where)

        def rows(contexts: Sequence[Sequence[int]]) -> SteeredRows:
            assert steering is not None
            return SteeredRows(network, contexts, vocabulary_size=self.model.vocabulary_size, steering=steering)

        return sampled(
            self.model,
            [prompt] * len(seeds),
            seeds,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            longest=self.longest,
            stop=FENCE if self.stop is None and self._named == PRETRAINED else self.stop,
            chat=self._named == INSTRUCTION,
            rows=self.rows,
            session=None if steering is None else rows,
        )
