"""Reference models of the embedded default model, in tiny settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpassay.attacks.black_box.repetitions import FILE
from dpassay.attacks.membership import scores as mi
from dpassay.attacks.membership.reference_models import References, coins, reference_signals, signals
from dpassay.data import corpora
from dpassay.mechanisms.compute.workers import executor
from dpassay.mechanisms.models.fine_tuning import Training, fine_tune
from dpassay.mechanisms.models.language_model import LanguageModel

KEYS = corpora.keys(32, seed=3)
CANDIDATES, POPULATION = KEYS[:24], KEYS[24:]
TRAINING = Training(epochs=8, batch_size=4, learning_rate=3e-3)


def test_coins_are_fair_and_belong_to_their_seed() -> None:
    """10⁵ coins: a share further than .008 from ½ has probability 4·10⁻⁷; so has one of 99 pairs beyond 5.8σ."""
    drawn = coins(200, 1000, seed=5)
    assert drawn.shape == (200, 1000)
    assert np.array_equal(drawn[1::2], ~drawn[::2])  # so that every candidate is in half of the models
    first = drawn[::2]
    assert abs(first.mean() - 0.5) < 0.008
    assert np.array_equal(coins(3, 1000, seed=5), drawn[:3])
    assert not np.array_equal(coins(1, 1000, seed=6), drawn[:1])
    agreement = [(first[i] == first[i + 1]).mean() for i in range(99)]
    assert max(abs(share - 0.5) for share in agreement) < 5.8 * 0.5 / 1000**0.5


def test_finished_models_are_kept_for_the_same_settings(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    few, others, once = CANDIDATES[:3], POPULATION[:1], Training(epochs=1, batch_size=4)

    def references(models: int) -> References:
        return reference_signals(
            few,
            others,
            models=models,
            training=once,
            seed=7,
            folder=tmp_path,
            progress=lambda done, total: steps.append((done, total)),
        )

    first, more = references(1), references(2)
    assert steps == [(0, 1), (1, 1), (1, 2), (2, 2)]  # the first one was kept
    assert np.array_equal(more.signals[:1], first.signals)
    assert np.array_equal(more.inclusion, coins(2, 3, 7))
    assert more.population.shape == (2, 1)
    assert oct((tmp_path / FILE).stat().st_mode & 0o777) == "0o600"
    with pytest.raises(ValueError, match="other settings"):
        reference_signals(few[::-1], others, models=2, training=once, seed=7, folder=tmp_path)


@pytest.mark.slow
def test_workers_train_the_same_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, with one thread here and there."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options: dict[str, Any] = {"models": 3, "training": Training(epochs=1, batch_size=4), "seed": 7}
    with executor(2, None) as do:
        there = reference_signals(CANDIDATES[:3], POPULATION[:1], executor=do, **options)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        here = reference_signals(CANDIDATES[:3], POPULATION[:1], **options)
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(here.signals, there.signals)
    assert np.array_equal(here.population, there.population)


@pytest.mark.slow
def test_members_of_reference_models_are_likelier_and_attacks_find_those_of_a_target() -> None:
    base = LanguageModel.load("builtin", "cpu")
    known = reference_signals(CANDIDATES, POPULATION, models=4, training=TRAINING, seed=7)
    more = known.signals
    assert more[known.inclusion].mean() > more[~known.inclusion].mean() + 0.1

    members = np.random.default_rng(8).random(24) < 0.5
    target = fine_tune(
        base, [text for text, inside in zip(CANDIDATES, members, strict=True) if inside], TRAINING, seed=9
    )
    said = signals(target, [*CANDIDATES, *POPULATION])
    arguments = said[:24], more, known.inclusion
    online, offline = mi.lira_online(*arguments), mi.lira_offline(*arguments)
    rmia = mi.rmia_offline(*arguments, said[24:], known.population, gamma=1.0)
    for scores in (mi.loss_threshold(said[:24]), online, offline, rmia):
        value = np.mean(scores[members][:, None] > scores[~members][None, :])
        assert value > 0.8  # by chance ½ with a standard deviation of .12; this run is the same every time


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        reference_signals([], models=1, training=TRAINING, seed=0)
    with pytest.raises(ValueError, match="models must be at least 1"):
        reference_signals(CANDIDATES, models=0, training=TRAINING, seed=0)
