"""Perplexities of rows against the probability of each token by itself."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import save_model

from dpassay.data.table_schema import Schema
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.two_stage.row_tokens import Role, RowTokens
from dpassay.utility.row_perplexity import row_perplexities

SCHEMA = Schema.model_validate(
    {
        "columns": [
            {"name": "age", "type": "number", "low": 0, "high": 120, "missing": True},
            {"name": "sex", "type": "category", "values": ["f", "m"]},
        ]
    }
)


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return LanguageModel.load(save_model(tmp_path_factory.mktemp("model"), request.param), device="cpu")


def test_perplexities_are_those_of_tokens_one_by_one(model: LanguageModel) -> None:
    tokens, rng = RowTokens(model, SCHEMA, "sentence"), np.random.default_rng(0)
    rows = [SCHEMA.uniform(rng) for _ in range(5)]
    losses: dict[Role, list[float]] = {role: [] for role in Role}
    for row in rows:
        ids, roles = tokens.encoded(dict(enumerate(row)))
        for index in range(1, len(ids)):
            chances = torch.log_softmax(model.plain_logits(ids[:index]).double(), dim=0)
            losses[roles[index]].append(-float(chances[ids[index]]))
    result = row_perplexities(model, tokens, rows, rows_at_once=2)
    for role, value in ((Role.KEY, result.key), (Role.VALUE, result.value), (Role.OTHER, result.other)):
        assert value == pytest.approx(math.exp(np.mean(losses[role])), rel=1e-4)  # float32
    assert result.all == pytest.approx(math.exp(np.mean(sum(losses.values(), []))), rel=1e-4)  # noqa: RUF017
    assert result.rows == 5
    assert row_perplexities(model, tokens, rows, rows_at_once=5).all == pytest.approx(result.all, rel=1e-5)


def test_a_model_that_knows_nothing_chooses_among_all_tokens(model: LanguageModel, tmp_path: Path) -> None:
    """Uniform logits: each perplexity is the number of tokens."""
    network = LanguageModel.load(save_model(tmp_path / "model", "gpt2"), device="cpu").network
    for weight in network.parameters():
        weight.data.zero_()
    flat = dataclasses.replace(model, network=network)
    tokens = RowTokens(flat, SCHEMA, "colon")
    result = row_perplexities(flat, tokens, [("30", "f"), ("missing", "m")])
    for value in (result.key, result.value, result.other, result.all):
        assert value == pytest.approx(model.vocabulary_size, rel=1e-5)


def test_orders_of_columns_are_drawn_with_the_seed(model: LanguageModel) -> None:
    tokens = RowTokens(model, SCHEMA, "lines")
    rows = [("30", "f")] * 6
    plain = row_perplexities(model, tokens, rows)
    shuffled = row_perplexities(model, tokens, rows, shuffle=True, seed=1)
    assert shuffled == row_perplexities(model, tokens, rows, shuffle=True, seed=1)
    assert shuffled.key != pytest.approx(plain.key, rel=1e-6)


def test_no_rows_have_no_perplexity(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        row_perplexities(model, RowTokens(model, SCHEMA, "sentence"), [])
