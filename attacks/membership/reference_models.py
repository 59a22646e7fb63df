"""Reference models: copies of a public model that the attacker fine-tunes on random halves of the candidates.

The attacker tosses its own coins (a public choice, from a seed) and so knows the members of each reference model; it
never sees the coins of the game. Models come in pairs, and the second is trained on the records that the first was not
trained on, so with an even number of models every candidate is in exactly half of them. The results are signals: the
mean token log-probability of each candidate under each model.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpassay.attacks.black_box.repetitions import repeat
from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor, keep
from dpassay.mechanisms.models.fine_tuning import Training, fine_tune, log_probabilities
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.model_folder import BUILTIN
from dpassay.mechanisms.models.model_reference import ModelReference


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """The mean log-probability of a token of each candidate, end included, in nats, under k reference models, shape (k,
    n); whether each was trained on the candidate, of the same shape; and the signals of a population on which none was
    trained, shape (k, m)."""

    signals: Floats
    inclusion: Bools
    population: Floats


def coins(models: int, records: int, seed: int) -> Bools:
    """The attacker's coins, shape (models, records), determined by the seed.

    Those of models 0, 2, 4, … are fair and independent; each odd model has the records that the previous one lacks.
    """
    rows = [_coins(seed, index, records) for index in range(models)]
    return np.array(rows, dtype=np.bool_).reshape(models, records)


def signals(model: LanguageModel, texts: Sequence[str]) -> Floats:
    """The mean log-probability of a token of each text, its end included, in nats; shape (n,)."""
    sums, counts = log_probabilities(model, texts)
    return np.asarray(sums / counts)


def reference_signals(
    candidates: Sequence[str],
    population: Sequence[str] = (),
    *,
    models: int,
    training: Training,
    seed: int,
    source: str | Path = BUILTIN,
    device: str = "cpu",
    executor: Executor = THIS_PROCESS,
    folder: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> References:
    """Trains reference models and computes the signals of all candidates. The models are not kept.

    Train them as the target was trained, from the same public model, so that their records play the same role.

    Args:
        candidates: n records.
        population: m further records of the same kind, for RMIA.
        models: k ≥ 1.
        training: how each model is fine-tuned.
        seed: of coins and training.
        source: the public model: ``builtin`` or a local folder.
        device: ``cpu``, ``cuda`` or ``auto``.
        executor: where models are trained. Each worker loads the public model; it must be at the same path there.
        folder: where signals of finished models are saved, to resume from; private, like the candidates.
        progress: called with the number of finished models and k.

    Raises:
        ValueError: if there is no candidate, a model cannot be loaded, or the folder has results of other settings.
    """
    validate.integer(minimum=1, models=models)
    if not candidates:
        raise ValueError("candidates must have at least one record to train reference models on")
    base = _loaded(str(source), device)
    public = ModelReference.of(base)
    keep(public, base)
    job = functools.partial(_train_one, public, tuple(candidates), tuple(population), training, seed)
    settings = {
        "model": base.fingerprint,
        "candidates": _digest(candidates),
        "population": _digest(population),
        "training": asdict(training),
    }
    rows = repeat(job, models, seed=seed, executor=executor, folder=folder, progress=progress, settings=settings)
    every = np.array(rows, dtype=np.float64)
    return References(
        signals=every[:, : len(candidates)],
        inclusion=coins(models, len(candidates), seed),
        population=every[:, len(candidates) :],
    )


def _train_one(
    public: ModelReference,
    candidates: tuple[str, ...],
    population: tuple[str, ...],
    training: Training,
    coins_seed: int,
    index: int,
    seed: np.random.SeedSequence,
) -> Any:
    base = public.load()
    chosen = _coins(coins_seed, index, len(candidates))
    members = [text for text, inside in zip(candidates, chosen, strict=True) if inside]
    order = int(seed.generate_state(1)[0])
    # If no coin is heads (probability 2⁻ⁿ), there is nothing to train on and the model is unchanged.
    trained = fine_tune(base, members, training, seed=order) if members else base
    return signals(trained, [*candidates, *population]).tolist()


def _coins(seed: int, index: int, records: int) -> Bools:
    """The coins of one model. The spawn key has two numbers, so it differs from those of `repeat`, which have one."""
    pair = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index // 2, 0)))
    return np.asarray(pair.integers(0, 2, size=records) == (index + 1) % 2)


@functools.lru_cache(maxsize=1)
def _loaded(source: str, device: str) -> LanguageModel:
    return LanguageModel.load(source, device, dtype="float32")


def _digest(texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()
