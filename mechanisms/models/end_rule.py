"""Where a generated text ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Decoder(Protocol):
    """The interface of a language model that `EndRule` uses."""

    end_of_text_ids: tuple[int, ...]

    @property
    def end_of_turn_ids(self) -> tuple[int, ...]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


@dataclass(frozen=True)
class EndRule:
    """Determines where a document ends: a function of its released tokens and public numbers only.

    Attributes:
        model: decodes, and has the tokens that end a text.
        stop: a string that ends a document, or None.
        longest: the largest number of sampled tokens of a document.
        chat: whether documents are answers in the model's chat template, which its end of turn ends too.
    """

    model: Decoder
    stop: str | None
    longest: int
    chat: bool = False

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a document."""
        return self.model.end_of_text_ids + (self.model.end_of_turn_ids if self.chat else ())

    def stopped(self, tokens: Sequence[int]) -> bool:
        """Whether the document ended by itself with its last token."""
        if tokens[-1] in self.ends:
            return True
        if self.stop is None:
            return False
        # A token has at least one byte, so this tail holds any stop string that ends with the last token.
        return self.stop in self.model.decode(tokens[-len(self.stop.encode()) - 4 :])

    def ended(self, tokens: Sequence[int]) -> bool:
        """Whether the next token begins a new document."""
        return len(tokens) >= self.longest or self.stopped(tokens)

    def split(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        """The documents of a slot; the last may be unfinished."""
        documents: list[tuple[int, ...]] = []
        current: list[int] = []
        for token in tokens:
            current.append(token)
            if self.ended(current):
                documents.append(tuple(current))
                current = []
        return [*documents, tuple(current)] if current else documents

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a document, without what ended it."""
        ends = self.ends
        kept = [token for token in tokens if token not in ends]
        text = self.model.decode(kept)
        return text if self.stop is None else text.partition(self.stop)[0]
