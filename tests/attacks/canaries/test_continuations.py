"""Echoes whose endings a language model writes: what they look like, and that none has a place among the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from dpassay.attacks.canaries import continuations
from dpassay.attacks.canaries.continuations import ENDING, draw_continued
from dpassay.data.corpora import notes
from dpassay.mechanisms.models.language_model import LanguageModel

KNOWN = [text for text, _ in notes(200, 0)]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel.load("builtin", "cpu", dtype="float32")


def test_no_two_endings_are_equal_and_all_fit_into_a_line(model: LanguageModel) -> None:
    progress: list[tuple[int, int]] = []
    echoes = draw_continued(
        model, 40, KNOWN, 2.0, np.random.default_rng(0), lambda done, total: progress.append((done, total))
    )
    endings = [echo.text[echo.start :] for echo in echoes]
    assert len(set(endings)) == len(echoes) == 40
    assert all(ending.strip() and echo.text.isprintable() for ending, echo in zip(endings, echoes, strict=True))
    assert all(echo.text[: echo.start].strip() for echo in echoes)
    assert max(len(model.encode(ending)) for ending in endings) <= ENDING + 1
    assert progress[-1] == (40, 40)


def test_a_temperature_that_writes_too_few_endings_is_refused(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuations, "_ROUNDS", 1)
    monkeypatch.setattr(continuations, "draw_beginnings", lambda count, *_: ["Patient with"] * count)
    with pytest.raises(ValueError, match=r"writes only 1 different endings at canary_temperature 0.001, but 10"):
        draw_continued(model, 10, KNOWN, 1e-3, np.random.default_rng(0))
    with pytest.raises(ValueError, match="canary_temperature must be above 0"):
        draw_continued(model, 10, KNOWN, 0.0, np.random.default_rng(0))


def test_a_short_context_is_refused(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "context_length", 20)
    with pytest.raises(ValueError, match="its context has 20; name another model with --scorer"):
        draw_continued(model, 2, KNOWN, 1.0, np.random.default_rng(0))


class Letters:
    """A model of the letters a and b, with probabilities (1 + i)/10, and of an end of text, which is likeliest."""

    name, context_length, beginning_ids, end_of_text_ids = "letters", 100, (), (4,)

    def encode(self, text: str) -> list[int]:
        return [0]

    def decode(self, tokens: list[int]) -> str:
        return "abcd"[tokens[0]]

    def packed_rows(self, contexts: list[list[int]]) -> Any:
        return self

    rows = 0

    def logits(self) -> torch.Tensor:
        weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 100.0])
        return weights.log().expand(self.rows, 5)

    def append(self, tokens: torch.Tensor) -> None:
        raise AssertionError("one token is enough")


def test_canaries_are_exchangeable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two endings of four, with probabilities 1/10 to 4/10 each: either order is as likely, whatever the pair.

    Drawn without shuffling, the likelier ending would come first more often: 4 before 1 with probability .70. Each of
    the six pairs of 4000 draws is split by a fair coin; one is refused at 10⁻⁷ each.
    """
    monkeypatch.setattr(continuations, "ENDING", 1)
    monkeypatch.setattr(continuations, "draw_beginnings", lambda count, *_: [""] * count)
    letters = Letters()
    letters.rows = 1
    monkeypatch.setattr(continuations, "_ROWS", 1)
    monkeypatch.setattr(continuations, "_ROUNDS", 1000)
    rng = np.random.default_rng(0)
    model: Any = letters
    drawn = ["".join(echo.text for echo in draw_continued(model, 2, KNOWN, 1.0, rng)) for _ in range(4000)]
    for first, second in ("ab", "ac", "ad", "bc", "bd", "cd"):
        split = drawn.count(first + second), drawn.count(second + first)
        assert sum(split) > 100
        assert stats.binomtest(split[0], sum(split)).pvalue > 1e-7
    share = sum("d" in pair for pair in drawn) / 4000
    # d is first with 4/10, or second after i with p_i·4/(10 − 10·p_i).
    expected = 0.4 + sum(p * 0.4 / (1 - p) for p in (0.1, 0.2, 0.3))
    assert abs(share - expected) < 6 * (expected * (1 - expected) / 4000) ** 0.5
    # At temperature 2, weights are roots: a single draw is d with 2/(1 + √2 + √3 + 2).
    warm = [draw_continued(model, 1, KNOWN, 2.0, rng)[0].text for _ in range(4000)].count("d") / 4000
    expected = 2 / (1 + 2**0.5 + 3**0.5 + 2)
    assert abs(warm - expected) < 6 * (expected * (1 - expected) / 4000) ** 0.5
