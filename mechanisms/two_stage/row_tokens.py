"""Rows of a table as tokens: how they are serialised, parsed, and what may follow a beginning.

A row is a sequence of pairs in any order of the columns, such as ``age is 39, sex is female``. Keys, values and what
stands between them are tokenised separately, so that each token has one role. Words of numbers and dates are spelled
character by character; a category is one piece. `Values` is the automaton of a column: from each state, the tokens that
can still lead to a word of its public domain.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from dpassay.base import validate
from dpassay.data.table_schema import MISSING, CategoryColumn, Row, Schema, SchemaColumn, SpelledColumn

if TYPE_CHECKING:
    from dpassay.mechanisms.models.language_model import LanguageModel

Tokens: TypeAlias = tuple[int, ...]
Pairs: TypeAlias = Mapping[int, str]
"""The index of a column in the schema → its word, in the order of the pairs."""


class Role(IntEnum):
    """What a token is in a row."""

    OTHER = 0
    KEY = 1
    VALUE = 2


@dataclass(frozen=True, slots=True)
class Serializer:
    """What is written between a key and its value, and between such pairs."""

    assign: str
    separator: str


SERIALIZERS: dict[str, Serializer] = {
    "sentence": Serializer(" is", ","),
    "colon": Serializer(":", ";"),
    "lines": Serializer(":", "\n"),
}
"""Name → serialiser. ``sentence`` is that of the paper: ``age is 39, sex is female``."""

_ANCHOR = "="  # before a character inside a word


class Values:
    """The automaton of a column's words. A state is a tuple of tokens; the start is the empty one.

    Args:
        column: of the schema.
        piece: the tokens of a piece of text that begins with a space.
        character: the tokens of a character inside a word.

    Raises:
        ValueError: if two words have the same tokens; the message names neither.
    """

    def __init__(
        self, column: SchemaColumn, piece: Callable[[str], Tokens], character: Callable[[str], Tokens]
    ) -> None:
        self._column = column if isinstance(column, SpelledColumn) else None
        self._piece, self._character = piece, character
        self._edges: dict[Tokens, dict[int, Tokens]] = {}
        self._words: dict[Tokens, str] = {}
        self._begun: dict[Tokens, str] = {(): ""}  # what is spelled in a state
        self._grown: set[Tokens] = set()
        words = list(column.values) if isinstance(column, CategoryColumn) else []
        for word in [*words, MISSING] if column.missing else words:
            self._end(self._path((), piece(f" {word}")), word)

    def follow(self, state: Tokens) -> Mapping[int, Tokens]:
        """The tokens that may follow inside a word → the states that they lead to."""
        self._grow(state)
        return self._edges.get(state, {})

    def word(self, state: Tokens) -> str | None:
        """The word that ends in a state; None if none does."""
        self._grow(state)
        return self._words.get(state)

    def encoded(self, word: str) -> Tokens:
        """The tokens of a word."""
        if self._column is None or word == MISSING:
            return self._piece(f" {word}")
        rest = (token for item in word[1:] for token in self._character(item))
        return (*self._piece(f" {word[0]}"), *rest)

    @property
    def longest(self) -> int:
        """The largest number of tokens of a word, or more: each character may have as many as any has."""
        if self._column is None:
            return max(map(len, self._words))
        first = max(len(self._piece(f" {item}")) for item in self._column.characters if self._column.begins(item))
        inside = max(len(self._character(item)) for item in self._column.characters)
        return first + inside * (max(map(len, self._column.longest)) - 1)

    def _path(self, state: Tokens, tokens: Tokens) -> Tokens:
        for token in tokens:
            reached = (*state, token)
            self._edges.setdefault(state, {})[token] = reached
            state = reached
        return state

    def _end(self, state: Tokens, word: str) -> None:
        if not state or self._words.setdefault(state, word) != word:
            raise ValueError("two of its words have the same tokens; rename one")

    def _grow(self, state: Tokens) -> None:
        """Adds all characters that may follow in a state."""
        if self._column is None or state in self._grown or state not in self._begun:
            return
        self._grown.add(state)
        start = self._begun[state]
        if start and self._column.is_complete(start):
            self._end(state, start)
        for item in self._column.characters:
            if self._column.begins(start + item):
                tokens = self._character(item) if start else self._piece(f" {item}")
                self._begun[self._path(state, tokens)] = start + item


class RowTokens:
    """Serialised rows of a schema as tokens of a model.

    Attributes:
        start: tokens before a row.
        keys: of each column: its name and what stands before the value.
        values: the automaton of each column.
        separator: tokens between pairs.
        end: the token after a row.
        width: the largest number of tokens of a row, public: by the schema alone.

    Args:
        model: whose tokenizer is used.
        schema: public.
        serializer: a name of `SERIALIZERS`.

    Raises:
        ValueError: one line, if a row may not fit into the model's context, or rows could not be read back.
    """

    def __init__(self, model: LanguageModel, schema: Schema, serializer: str) -> None:
        form = SERIALIZERS[validate.one_of(tuple(SERIALIZERS), serializer=serializer)]
        if model.end_of_text_id is None:
            raise ValueError(f"model {model.name}: has no end-of-text token, which ends a row")
        self.schema, self.serializer = schema, serializer
        self._encode = {"": ()}  # type: dict[str, Tokens]
        self._model = model
        self.end = model.end_of_text_id
        self.start = tuple(model.beginning_ids) or (self.end,)
        self.separator = self._piece(form.separator)
        self.keys = [self._piece(f" {name}") + self._piece(form.assign) for name in schema.names]
        self.values = []
        for column in schema.columns:
            try:
                self.values.append(Values(column, self._piece, self._inside))
            except ValueError as error:
                raise ValueError(f"column {column.name!r}: {error}") from None
        self._check_separable()
        longest = [
            max(automaton.longest, len(self._piece(f" {MISSING}")) if column.missing else 0)
            for column, automaton in zip(schema.columns, self.values, strict=True)
        ]
        pairs = sum(len(key) + value for key, value in zip(self.keys, longest, strict=True))
        self.width = len(self.start) + pairs + (len(self.keys) - 1) * len(self.separator) + 1
        if self.width > model.context_length:
            widest = max(zip(longest, schema.names, strict=True))
            raise ValueError(
                f"a row may have {self.width} tokens, but model {model.name} has a context of {model.context_length}; "
                f"leave columns out, or shorten their words (the widest is {widest[1]!r} with {widest[0]} tokens)"
            )

    def _piece(self, text: str) -> Tokens:
        """The tokens of a piece of text by itself."""
        if text not in self._encode:
            self._encode[text] = tuple(self._model.encode(text))
            if not self._encode[text] or self.end in self._encode[text]:
                raise ValueError(f"model {self._model.name}: its tokenizer cannot write {text.strip()[:40]!r}")
        return self._encode[text]

    def _inside(self, character: str) -> Tokens:
        """The tokens of a character inside a word, where a tokenizer puts no space before it."""
        anchor, both = self._piece(_ANCHOR), self._piece(_ANCHOR + character)
        begins = both[: len(anchor)] == anchor and len(both) > len(anchor)
        return both[len(anchor) :] if begins else self._piece(character)

    def _check_separable(self) -> None:
        """Checks that rows can be read back: no key begins another one, and no word goes on with a separator."""
        ordered = sorted(self.keys)
        if any(after[: len(before)] == before for before, after in itertools.pairwise(ordered)):
            raise ValueError(f"serializer {self.serializer}: one column's name begins like another's; rename it")
        for column, automaton in zip(self.schema.columns, self.values, strict=True):
            words = column.values if isinstance(column, CategoryColumn) else ()
            for word in words:
                if self.separator[0] in automaton.follow(automaton.encoded(word)):
                    raise ValueError(
                        f"column {column.name!r}: a category goes on where another one ends, with the separator of "
                        f"serializer {self.serializer}; use another one of {', '.join(SERIALIZERS)}"
                    )

    def encoded(self, pairs: Pairs) -> tuple[list[int], list[Role]]:
        """The tokens of pairs, from the start to the end of the row, and their roles."""
        tokens, roles = list(self.start), [Role.OTHER] * len(self.start)
        for position, (index, word) in enumerate(pairs.items()):
            value = self.values[index].encoded(word)
            if position:
                tokens += self.separator
                roles += [Role.OTHER] * len(self.separator)
            tokens += (*self.keys[index], *value)
            roles += [Role.KEY] * len(self.keys[index]) + [Role.VALUE] * len(value)
        return [*tokens, self.end], [*roles, Role.OTHER]

    def prompt(self, pairs: Pairs) -> list[int]:
        """The tokens of pairs after which another pair follows."""
        tokens, _ = self.encoded(pairs)
        return [*tokens[:-1], *(self.separator if pairs else ())]

    def parsed(self, tokens: Sequence[int], known: Pairs) -> dict[int, str]:
        """The valid pairs of what a model wrote after `prompt(known)`, together with those, in their order.

        A pair is valid if its column is new and its word is in the public domain, and if it is ended by a separator or
        the end of the row; all others are dropped.
        """
        result, position = dict(known), 0
        while position < len(tokens) and tokens[position] != self.end:
            index = self._key_at(tokens, position)
            if index is None:
                position = self._after_separator(tokens, position)
                continue
            state: Tokens = ()
            position += len(self.keys[index])
            while (
                position < len(tokens)
                and (reached := self.values[index].follow(state).get(tokens[position])) is not None
            ):
                state, position = reached, position + 1
            word, ended = self.values[index].word(state), self._ends(tokens, position)
            if word is not None and ended and index not in result:
                result[index] = word
            position = self._after_separator(tokens, position)
        return result

    def _key_at(self, tokens: Sequence[int], position: int) -> int | None:
        for index, key in enumerate(self.keys):
            if tuple(tokens[position : position + len(key)]) == key:
                return index
        return None

    def _ends(self, tokens: Sequence[int], index: int) -> bool:
        if index < len(tokens) and tokens[index] == self.end:
            return True
        return tuple(tokens[index : index + len(self.separator)]) == self.separator

    def _after_separator(self, tokens: Sequence[int], index: int) -> int:
        """The index after the next separator, or of the end."""
        while index < len(tokens) and tokens[index] != self.end:
            if tuple(tokens[index : index + len(self.separator)]) == self.separator:
                return index + len(self.separator)
            index += 1
        return len(tokens)

    def row(self, pairs: Pairs) -> Row:
        """The words of a row that has all columns, in the order of the schema."""
        return tuple(pairs[index] for index in range(len(self.keys)))
