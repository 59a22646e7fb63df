"""Rows as tokens: what is written is read back, also after rubbish, and only words of the domain can follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from small_models import save_model

from dpassay.data.table_schema import MISSING, Schema
from dpassay.data.tables import RANDHIE
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.two_stage.row_tokens import SERIALIZERS, Role, RowTokens, Tokens

SCHEMA = Schema.model_validate(
    {
        "columns": [
            {"name": "age", "type": "number", "low": -5, "high": 120, "missing": True},
            {"name": "weight in kg", "type": "number", "low": 0, "high": 99.9, "decimals": 1},
            {
                "name": "Größe",
                "type": "category",
                "values": ["klein", "groß", "größer als groß", "日本"],
                "missing": True,
            },
            {"name": "seen", "type": "date", "low": "2019-12-30", "high": "2020-01-02", "missing": True},
        ]
    }
)


@pytest.fixture(scope="module", params=["builtin", "gpt2", "llama"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    if request.param == "builtin":
        return LanguageModel.load()
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, request.param)
    return LanguageModel.load(folder)


def rows(count: int, seed: int = 0) -> Iterator[dict[int, str]]:
    """Random rows in random orders of their columns."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        row = SCHEMA.uniform(rng)
        yield {int(index): row[index] for index in rng.permutation(len(row))}


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_rows_are_read_back_in_any_order(model: LanguageModel, serializer: str) -> None:
    tokens = RowTokens(model, SCHEMA, serializer)
    for pairs in rows(200):
        ids, roles = tokens.encoded(pairs)
        results = tokens.parsed(ids[len(tokens.start) :], {})
        assert list(results.items()) == list(pairs.items())
        assert len(ids) == len(roles) <= tokens.width
        values = [token for token, role in zip(ids, roles, strict=True) if role is Role.VALUE]
        assert values == [token for index, word in pairs.items() for token in tokens.values[index].encoded(word)]


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_a_row_continues_its_own_prompt(model: LanguageModel, serializer: str) -> None:
    tokens = RowTokens(model, SCHEMA, serializer)
    for pairs in rows(50, 1):
        ids, _ = tokens.encoded(pairs)
        for kept in range(len(pairs)):
            known = dict(list(pairs.items())[:kept])
            prompt = tokens.prompt(known)
            assert ids[: len(prompt)] == prompt
            assert list(tokens.parsed(ids[len(prompt) :], known).items()) == list(pairs.items())


def test_what_is_not_valid_is_dropped_and_the_rest_is_kept(model: LanguageModel) -> None:
    """A wrong value, a value of another column, a repeated column, an unknown key, and a cut end."""
    tokens = RowTokens(model, SCHEMA, "sentence")

    def piece(text: str) -> list[int]:
        return model.encode(text)

    good, _ = tokens.encoded({0: "39"})
    good = good[len(tokens.start) : -1]
    weight, _ = tokens.encoded({1: "70.5"})
    weight = weight[len(tokens.start) : -1]
    comma = list(tokens.separator)
    wrong_number = [*tokens.keys[1], *piece(" 7777")]
    wrong_column = [*tokens.keys[3], *tokens.values[2].encoded("klein")]
    unknown = piece(" colour is red")
    for rubbish in (wrong_number, wrong_column, unknown, piece("!!"), []):
        written = [*rubbish, *comma, *good, *comma, *good, *comma, *weight, tokens.end]
        assert tokens.parsed(written, {}) == {0: "39", 1: "70.5"}
        assert tokens.parsed(written, {0: "7"}) == {0: "7", 1: "70.5"}
    assert tokens.parsed(good, {}) == {}  # cut: it might have been 390
    assert tokens.parsed([*good, *piece(" years"), *comma], {}) == {}
    assert tokens.parsed([tokens.end, *good, *comma], {}) == {}


def words(tokens: RowTokens, index: int) -> set[str]:
    """All words that the automaton of a column can write."""
    result: set[str] = set()
    waiting: list[Tokens] = [()]
    while waiting:
        state = waiting.pop()
        word = tokens.values[index].word(state)
        result |= {word} if word is not None else set()
        waiting += tokens.values[index].follow(state).values()
    return result


def test_an_automaton_writes_exactly_its_domain(model: LanguageModel) -> None:
    tokens = RowTokens(model, SCHEMA, "sentence")
    assert words(tokens, 0) == {str(age) for age in range(-5, 121)} | {MISSING}
    assert words(tokens, 1) == {f"{tenth / 10:.1f}" for tenth in range(1000)}
    assert words(tokens, 2) == {"klein", "groß", "größer als groß", "日本", MISSING}
    assert words(tokens, 3) == {"2019-12-30", "2019-12-31", "2020-01-01", "2020-01-02", MISSING}


def one_category(*values: str) -> dict[str, Any]:
    return {"columns": [{"name": "x", "type": "category", "values": list(values)}]}


def test_words_that_go_on_with_a_separator_need_another_serializer(model: LanguageModel) -> None:
    schema = Schema.model_validate(one_category("a", "a, b"))
    with pytest.raises(ValueError, match="a category goes on where another one ends, with the separator") as error:
        RowTokens(model, schema, "sentence")
    assert "a, b" not in str(error.value)
    tokens = RowTokens(model, schema, "colon")
    assert words(tokens, 0) == {"a", "a, b"}
    ids, _ = tokens.encoded({0: "a, b"})
    assert tokens.parsed(ids[len(tokens.start) :], {}) == {0: "a, b"}


def test_names_that_begin_alike_are_refused(model: LanguageModel) -> None:
    column = {"type": "category", "values": ["a"]}
    schema = Schema.model_validate({"columns": [{"name": "x", **column}, {"name": "x is y", **column}]})
    with pytest.raises(ValueError, match="one column's name begins like another's"):
        RowTokens(model, schema, "sentence")


def test_a_row_that_may_not_fit_is_refused_by_the_schema_alone() -> None:
    model = LanguageModel.load()
    schema = Schema.model_validate(one_category("a", "q7" * 200))
    with pytest.raises(ValueError, match=r"a row may have \d+ tokens, but model builtin has a context of 256") as error:
        RowTokens(model, schema, "sentence")
    assert "the widest is 'x'" in str(error.value)


@pytest.mark.grid
def test_all_words_of_a_domain_fit_into_the_width(model: LanguageModel) -> None:
    """By enumeration of every word of every column; where each character is a token, one row fills the width."""
    tokens = RowTokens(model, SCHEMA, "sentence")
    widest = {
        index: max(words(tokens, index), key=lambda word: len(tokens.values[index].encoded(word)))
        for index in range(len(SCHEMA.columns))
    }
    assert len(tokens.encoded(widest)[0]) <= tokens.width
    builtin = RowTokens(LanguageModel.load(), RANDHIE, "sentence")
    row = {0: "99", 1: "100", 2: "yes", 3: "2000", 4: "4000", 5: "yes", 6: "60.0", 7: "excellent"}
    assert len(builtin.encoded(row)[0]) == builtin.width


def test_a_tokenizer_whose_digits_have_several_tokens(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first year of the domain is spelled with fewer tokens than others; the width covers all of them."""
    plain = LanguageModel.encode

    def encode(self: LanguageModel, text: str) -> list[int]:
        result = plain(self, text)
        return result + result[-1:] if text[-1:] in "023456789" else result  # all digits but 1 have a token more

    monkeypatch.setattr(LanguageModel, "encode", encode)
    day = {"name": "day", "type": "date", "low": "1111-11-11", "high": "1111-12-30"}
    tokens = RowTokens(model, Schema.model_validate({"columns": [day]}), "sentence")
    lengths = [len(tokens.encoded({0: word})[0]) for word in words(tokens, 0)]
    assert len(set(lengths)) > 1
    assert max(lengths) <= tokens.width
