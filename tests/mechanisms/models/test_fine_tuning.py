"""Fine-tuning and log-probabilities against one text at a time, one token at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dpassay.data import corpora
from dpassay.mechanisms.models import fine_tuning
from dpassay.mechanisms.models.fine_tuning import Training
from dpassay.mechanisms.models.language_model import LanguageModel

KEYS = corpora.keys(8, seed=0)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel.load("builtin", "cpu")


def test_log_probabilities_are_those_of_each_token_alone(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in pieces of one row; float32 logits of a batch differ by `row_difference`, twice a token."""
    texts = ["My 5-digit key is 04821", "", "a", corpora.notes(1, 0)[0][0]]
    expected, lengths = [], []
    for text in texts:
        tokens = [model.end_of_text_ids[0], *model.encode(text), model.end_of_text_ids[0]]
        logs = [torch.log_softmax(model.plain_logits(tokens[:i]), 0)[tokens[i]].item() for i in range(1, len(tokens))]
        expected.append(sum(logs))
        lengths.append(len(logs))
    for entries in (fine_tuning.ENTRIES, 1):
        monkeypatch.setattr(fine_tuning, "ENTRIES", entries)
        sums, counts = fine_tuning.log_probabilities(model, texts)
        assert counts.tolist() == lengths
        np.testing.assert_allclose(sums, expected, atol=4 * max(lengths) * (model.row_difference + 1e-6))
    assert fine_tuning.log_probabilities(model, [])[0].shape == (0,)


def test_log_probabilities_of_endings_are_those_of_their_tokens_alone(model: LanguageModel) -> None:
    """The tokens from the first that the beginning alone does not have, whether or not they are cut at the start."""
    texts, starts = ["Please pay 0171-5550142 now.", "A note about apples", "abc"], [11, 9, 0]
    expected = []
    for text, start in zip(texts, starts, strict=True):
        tokens = [model.end_of_text_ids[0], *model.encode(text), model.end_of_text_ids[0]]
        before = [model.end_of_text_ids[0], *model.encode(text[:start])]
        first = 0
        while first < len(before) and before[first] == tokens[first]:
            first += 1
        logs = [
            torch.log_softmax(model.plain_logits(tokens[:i]), 0)[tokens[i]].item() for i in range(first, len(tokens))
        ]
        expected.append((sum(logs), len(logs)))
    sums, counts = fine_tuning.log_probabilities(model, texts, starts)
    assert counts.tolist() == [length for _, length in expected]
    np.testing.assert_allclose(sums, [total for total, _ in expected], atol=4 * 40 * (model.row_difference + 1e-6))
    whole, _ = fine_tuning.log_probabilities(model, texts)
    assert sums[0] > whole[0]
    assert sums[2] == pytest.approx(whole[2])


def test_training_makes_its_texts_likelier_and_is_repeatable(model: LanguageModel, tmp_path: Path) -> None:
    before = {name: weight.clone() for name, weight in model.network.state_dict().items()}
    training = Training(epochs=12, batch_size=4, learning_rate=3e-3)
    steps: list[tuple[int, int]] = []
    trained = fine_tuning.fine_tune(
        model, KEYS[:4], training, seed=1, progress=lambda done, total: steps.append((done, total))
    )
    assert steps == [(step, 12) for step in range(1, 13)]
    gain = fine_tuning.log_probabilities(trained, KEYS)[0] - fine_tuning.log_probabilities(model, KEYS)[0]
    assert gain[:4].min() > 1  # e times likelier, each
    assert gain[:4].mean() > gain[4:].mean() + 1
    assert all(torch.equal(weight, before[name]) for name, weight in model.network.state_dict().items())
    again = fine_tuning.fine_tune(model, KEYS[:4], training, seed=1)
    assert again.fingerprint == trained.fingerprint != model.fingerprint
    assert fine_tuning.fine_tune(model, KEYS[:4], training, seed=2).fingerprint != trained.fingerprint
    fine_tuning.save(trained, tmp_path / "model")
    loaded = LanguageModel.load(tmp_path / "model", "cpu")
    assert np.array_equal(
        fine_tuning.log_probabilities(loaded, KEYS)[0], fine_tuning.log_probabilities(trained, KEYS)[0]
    )


def test_a_batch_in_pieces_has_the_gradient_of_the_whole(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam's first step moves each weight by the rate times its gradient's sign, so weights show the gradient."""
    training = Training(epochs=1, batch_size=8, learning_rate=1e-3)
    whole = fine_tuning.fine_tune(model, KEYS, training, seed=0)
    monkeypatch.setattr(fine_tuning, "ENTRIES", 30 * model.vocabulary_size)
    pieces = fine_tuning.fine_tune(model, KEYS, training, seed=0)
    far = [
        ((a - b).abs() > 1e-4).double().mean().item()
        for a, b in zip(whole.network.parameters(), pieces.network.parameters(), strict=True)
    ]
    assert max(far) < 0.01  # gradients within rounding of 0 may change sign; those of half a batch change a third


def test_long_texts_are_cut_to_the_context(model: LanguageModel) -> None:
    counts = fine_tuning.log_probabilities(model, ["7" * 2 * model.context_length])[1]
    assert counts.tolist() == [model.context_length - 1]


def test_bad_arguments_are_refused(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="at least one text"):
        fine_tuning.fine_tune(model, [], Training(), seed=0)
    with pytest.raises(ValueError, match="epochs must be at least 1, not 0"):
        Training(epochs=0)
    with pytest.raises(ValueError, match="learning_rate must be above 0"):
        Training(learning_rate=0.0)
    with pytest.raises(ValueError, match="lower the learning rate"):
        fine_tuning.fine_tune(model, KEYS, Training(epochs=3, learning_rate=1e30), seed=0)
