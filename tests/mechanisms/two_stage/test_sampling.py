"""Rows that a model writes: valid whatever it writes, by the model's own probabilities, each from its own seed."""

from __future__ import annotations

import itertools

import pytest
import torch
from scipy import stats
from small_models import save_model

from dpassay.data.table_schema import Schema
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.two_stage.row_tokens import RowTokens
from dpassay.mechanisms.two_stage.sampling import RowSampler, Statistics, _Batch, sampled_rows

SCHEMA = Schema.model_validate(
    {
        "columns": [
            {"name": "tree", "type": "category", "values": ["ash", "ashen", "elm"]},
            {"name": "age", "type": "number", "low": 9, "high": 12},
        ]
    }
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = tmp_path_factory.mktemp("model")
    save_model(folder)
    return LanguageModel.load(folder)


def next_probabilities(model: LanguageModel, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits = model.network(input_ids=torch.tensor([tokens])).logits[0, -1, : model.vocabulary_size]
    return torch.softmax(logits.double(), 0)


def restricted(model: LanguageModel, tokens: RowTokens) -> dict[tuple[str, ...], float]:
    """The probability of each row, by brute force: token by token over the rows that still begin like this."""
    rows = [tuple(row) for row in itertools.product(("ash", "ashen", "elm"), ("9", "10", "11", "12"))]
    written = {row: tokens.encoded(dict(enumerate(row)))[0] for row in rows}

    def after(begun: list[int], whole: dict[tuple[str, ...], list[int]]) -> dict[tuple[str, ...], float]:
        if len(whole) == 1:
            return dict.fromkeys(whole, 1.0)
        following = {ids[len(begun)] for ids in whole.values()}
        chances = next_probabilities(model, begun)
        results: dict[tuple[str, ...], float] = {}
        total = sum(float(chances[token]) for token in following)
        for token in following:
            rest = {row: ids for row, ids in whole.items() if ids[len(begun)] == token}
            part = after([*begun, token], rest)
            results |= {row: float(chances[token]) / total * chance for row, chance in part.items()}
        return results

    return after(list(tokens.start), written)


@pytest.mark.slow
def test_restricted_rows_have_the_probabilities_of_the_model(model: LanguageModel) -> None:
    tokens = RowTokens(model, SCHEMA, "sentence")
    chances = restricted(model, tokens)
    assert sum(chances.values()) == pytest.approx(1)
    count = 3000
    result = list(sampled_rows(model, tokens, RowSampler(rounds=0), range(count)))
    likely = [row for row, chance in chances.items() if chance * count >= 5]
    seen = [sum(row == item for row in result) for item in likely]
    expected = [chances[item] * count for item in likely]
    if len(likely) < len(chances):
        seen.append(count - sum(seen))
        expected.append(count - sum(expected))
    assert set(result) <= set(chances)
    assert stats.chisquare(seen, expected).pvalue > 1e-4


@pytest.mark.grid
@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_a_row_follows_from_its_own_number(model: LanguageModel, rounds: int) -> None:
    tokens = RowTokens(model, SCHEMA, "sentence")
    sampler = RowSampler(rounds=rounds, seed=3)
    together = list(sampled_rows(model, tokens, sampler, range(12)))
    alone = [row for number in range(12) for row in sampled_rows(model, tokens, sampler, [number])]
    assert together == alone


class Scripted:
    """In place of a model's logits: rows of tokens that it writes, whatever the prompt."""

    def __init__(self, answers: list[list[int]], size: int) -> None:
        self._answers, self._size, self._step = answers, size, 0

    def logits(self) -> torch.Tensor:
        result = torch.full((len(self._answers), self._size), -1e9)
        for row, answer in enumerate(self._answers):
            result[row, answer[self._step] if self._step < len(answer) else 0] = 0.0
        return result

    def append(self, drawn: torch.Tensor) -> None:
        self._step += 1


def test_valid_pairs_are_kept_and_counted(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first round one row is whole, one has a pair, one has none; in the second the second is completed."""
    tokens = RowTokens(model, SCHEMA, "sentence")

    def text(written: str) -> list[int]:
        return [*model.encode(written), tokens.end]

    rounds = iter(
        [
            [text(" tree is elm, age is 10"), text(" age is 99, tree is ash"), text(" rubbish")],
            [text(" age is 12"), text(" tree is oak")],
        ]
    )
    asked: list[list[list[int]]] = []
    real = model.packed_rows

    def packed_rows(contexts: list[list[int]]) -> object:
        asked.append(contexts)
        answers = next(rounds, None)
        return real(contexts) if answers is None else Scripted(answers, model.vocabulary_size)

    monkeypatch.setattr(LanguageModel, "packed_rows", lambda self, contexts: packed_rows(contexts))
    statistics = Statistics()
    rows = list(sampled_rows(model, tokens, RowSampler(rounds=2), range(3), statistics))
    assert rows[:2] == [("elm", "10"), ("ash", "12")]
    assert rows[2][0] in ("ash", "ashen", "elm")
    assert rows[2][1] in ("9", "10", "11", "12")
    assert asked[1] == [tokens.prompt({0: "ash"}), tokens.prompt({})]
    assert statistics == Statistics(rows=3, valid=[3, 4], complete=[1, 2], restricted=2)


def test_rows_that_fill_the_context_end_beside_rows_that_begin(model: LanguageModel) -> None:
    """A row that lacks one column leaves before it is longer than the context; what it wrote is that of it alone."""
    columns = [{"name": f"c{index}", "type": "number", "low": 0, "high": 9999} for index in range(11)]
    schema = Schema.model_validate({"columns": columns})
    tokens, sampler = RowTokens(model, schema, "sentence"), RowSampler(rounds=1)
    assert 0.9 * model.context_length < tokens.width <= model.context_length
    nearly = dict.fromkeys(range(10), "1234")

    def batch(*pairs: dict[int, str]) -> _Batch:
        made = _Batch(model, tokens, sampler, range(len(pairs)), Statistics())
        made.pairs = [dict(of) for of in pairs]
        return made

    written = batch(nearly, {})._written([0, 1], 0)
    assert written[0] == batch(nearly)._written([0], 0)[0]
    assert len(tokens.prompt({})) + len(written[1]) <= tokens.width
    together, alone = batch(nearly, {}), batch(nearly)
    together._complete([0, 1])
    alone._complete([0])
    assert together.pairs[0] == alone.pairs[0]
    assert all(len(pairs) == 11 for pairs in together.pairs)


def test_rounds_are_counted_over_all_batches(model: LanguageModel) -> None:
    """Rows of a batch that is complete early still count in later rounds."""
    tokens, statistics = RowTokens(model, SCHEMA, "sentence"), Statistics()
    for number in range(5):
        list(sampled_rows(model, tokens, RowSampler(rounds=3), [number], statistics))
    assert statistics.rows == 5
    assert statistics.valid == sorted(statistics.valid)
    assert statistics.valid[-1] + statistics.restricted == 5 * 2
    assert len(statistics.complete) == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [({"temperature": 0.0}, "temperature"), ({"rounds": -1}, "rounds"), ({"seed": 0.5}, "seed")],
)
def test_settings_out_of_range_are_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RowSampler(**given)  # type: ignore[arg-type]
