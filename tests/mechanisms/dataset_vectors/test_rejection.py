"""Rejection: perplexities are those of the logits, judges are asked, and what is rejected is written again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpassay.mechanisms.dataset_vectors import rejection
from dpassay.mechanisms.dataset_vectors.journalled import journalled
from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.perplexity import perplexities
from dpassay.mechanisms.models.writers import WriterError


@pytest.fixture(scope="module")
def writer() -> ShotWriter:
    return ShotWriter(model=LanguageModel.load(device="cpu"), longest=40, longest_record=40, temperature=1.0)


def test_a_perplexity_is_that_of_the_next_tokens(writer: ShotWriter) -> None:
    """Token by token, by the logits after each beginning."""
    prompt, text = writer.prompt(None, (), 1), "patient came twice"
    own = writer.model.encode(text)
    logs = []
    for index, token in enumerate(own):
        logits = writer.model.plain_logits([*prompt, *own[:index]]).double()
        logs.append(float(torch.log_softmax(logits, dim=-1)[token]))
    (result,) = perplexities(writer.model, prompt, [text], writer.longest)
    assert result == pytest.approx(math.exp(-np.mean(logs)), rel=1e-4)
    assert perplexities(writer.model, prompt, [""], writer.longest).tolist() == [math.inf]


def test_noise_is_more_perplexing_than_the_models_own_texts(writer: ShotWriter) -> None:
    prompt = writer.prompt(None, (), 1)
    own = [text for text, _ in writer.texts(prompt, range(8))]
    threshold = rejection.default_threshold(writer, prompt, own)
    accepts = rejection.by_perplexity(writer, prompt, threshold)
    assert sum(accepts(own)) >= 7
    assert not any(accepts(["zq#x vv0 @@ jj}{ k9k9", "]][[ ;; qqq xx zz 00"]))


class Judge:
    """Answers with the ratings that it is given, one text after the other."""

    name = fingerprint = "judge"

    def __init__(self, answers: Sequence[str | None]) -> None:
        self.answers, self.read = iter(answers), list[str]()

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        raise NotImplementedError

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        self.read += texts
        return (next(self.answers) for _ in texts)


def test_a_judge_rates_and_what_cannot_be_read_is_zero() -> None:
    judge = Judge(["8", "Rating: 5.5", "no number", None, "6", "10/10", "From 1 to 10: 9"])
    assert rejection.by_judge(judge, None)(list("abcdefg")) == [True, False, False, False, True, True, False]
    assert judge.read == list("abcdefg")


def played(tmp_path: Path, judge: Judge, count: int, **given: Any) -> tuple[list[str], list[Sequence[int]]]:
    asked: list[Sequence[int]] = []

    def ask(seeds: Sequence[int]) -> Iterator[tuple[str, bool]]:
        asked.append(seeds)
        return ((f"text {seed}", True) for seed in seeds)

    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        texts = journalled(
            rejection.accepted(ask, rejection.by_judge(judge, None)),
            journal,
            None,
            "text",
            count,
            seed=1,
            finished=lambda _: None,
            **given,
        )
    return texts, asked


def test_rejected_texts_are_written_again_and_then_left_out(tmp_path: Path) -> None:
    texts, asked = played(tmp_path, Judge(["9", "1", "1", "9", "1", "1"]), 3, attempts=3)
    assert [len(seeds) for seeds in asked] == [3, 2, 1]
    assert len(texts) == 2
    assert len({seed for seeds in asked for seed in seeds}) == 6, "every attempt has a seed of its own"
    again, asked = played(tmp_path, Judge([]), 3, attempts=3)
    assert (again, asked) == (texts, [[]] * 3), "they are kept, the missing one, too"


def test_where_all_are_rejected_it_stops_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(WriterError, match="all 6 texts are empty or rejected"):
        played(tmp_path, Judge(["1"] * 6), 2, attempts=3)
