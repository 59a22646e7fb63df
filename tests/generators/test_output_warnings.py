"""Warnings of what a run made: nothing, texts that the embedded model does not know; and of records that were cut."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dpassay.data.records import builtin_records
from dpassay.generators.documents import Documents
from dpassay.generators.output_warnings import cut_records, is_longer, nothing_made, unknown_texts
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.perplexity import SAMPLE, least_unfamiliar, median_perplexity

FOREIGN = [
    "The delivery arrived two weeks late, and nobody answered my calls.",
    "Das Paket kam zwei Wochen zu spät, und niemand ging ans Telefon.",
    "def mean(values): return sum(values) / len(values)",
    "Fold the egg whites into the batter and bake until golden.",
]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel.load("builtin", device="cpu")


@pytest.mark.parametrize("name", ["keys", "notes"])
def test_texts_that_the_embedded_model_is_made_for_are_known(name: str, model: LanguageModel) -> None:
    texts = [record.text for record in builtin_records(name, 100, 3)]
    perplexity = median_perplexity(model, texts)
    assert perplexity is not None
    assert perplexity < least_unfamiliar(model) / 5
    assert unknown_texts(model, texts, "documents") == []


def test_texts_of_other_kinds_are_not(model: LanguageModel) -> None:
    for texts in (FOREIGN, FOREIGN[1:2], ["qzxj vkqw " * 20]):
        (said,) = unknown_texts(model, texts, "documents that it wrote")
        assert "does not know texts like the documents that it wrote: their median perplexity is" in said
        assert "above 32, the square root of the size of its vocabulary" in said
        assert not any(text[:12] in said for text in texts)
    assert unknown_texts(None, FOREIGN, "records") == []
    assert unknown_texts(model, None, "records") == unknown_texts(model, [], "records") == []
    assert unknown_texts(model, ["", " \n"], "records") == []


def test_the_perplexity_is_that_of_the_logits_and_the_median_of_an_even_sample(model: LanguageModel) -> None:
    """By the uncached logits of each beginning; of more texts every second, third, … counts."""
    text = FOREIGN[0]
    tokens, logs = model.encode(text), []
    for index, token in enumerate(tokens):
        logits = model.plain_logits([*model.end_of_text_ids[:1], *tokens[:index]]).double()
        logs.append(float(torch.log_softmax(logits, dim=-1)[token]))
    alone = median_perplexity(model, [text])
    assert alone == pytest.approx(math.exp(-np.mean(logs)), rel=1e-4)
    known = builtin_records("keys", SAMPLE + 1, 1)
    mixed = [text if index % 2 else record.text for index, record in enumerate(known)]
    assert median_perplexity(model, mixed) == median_perplexity(model, [record.text for record in known[::2]])
    assert median_perplexity(model, ["", *mixed, " "]) == median_perplexity(model, mixed)


def test_texts_longer_than_the_model_are_read_as_far_as_it_goes(model: LanguageModel) -> None:
    assert median_perplexity(model, ["My 5-digit key is 04821 " * 200]) is not None


@pytest.mark.parametrize(("texts", "warned"), [([], True), (["key ", "key \n"], True), (["key ", "key 1"], False)])
def test_documents_without_text_are_nothing(texts: list[str], warned: bool) -> None:
    made = Documents({"text": "string"}, [(text,) for text in texts]).output(whole=True, ends="", prefix="key ")
    assert bool(nothing_made(made)) is warned


def test_most_records_cut_are_warned_of(model: LanguageModel) -> None:
    assert cut_records(5, 10, "public.context_tokens") == cut_records(0, 0, "") == []
    (said,) = cut_records(6, 10, "public.context_tokens")
    assert said.startswith("6 of 10 records were cut to the first tokens that public.context_tokens leaves")
    tokens = len(model.encode(FOREIGN[0]))
    assert is_longer(model, FOREIGN[0], tokens - 1)
    assert not is_longer(model, FOREIGN[0], tokens)
