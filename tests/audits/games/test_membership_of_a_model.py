"""From a language model to a bound: the embedded model, fine-tuned on half of the candidates until it knows them."""

from __future__ import annotations

import numpy as np
import pytest

from dpassay.attacks.membership import scores as mi
from dpassay.attacks.membership.reference_models import reference_signals, signals
from dpassay.audits.games.membership import membership_audit
from dpassay.audits.games.membership_design import MembershipDesign, MembershipScores
from dpassay.data import corpora
from dpassay.mechanisms.models.fine_tuning import Training, fine_tune
from dpassay.mechanisms.models.language_model import LanguageModel

CANDIDATES, POPULATION, OTHERS = 160, 100, 80
TRAINING = Training(epochs=12, batch_size=8, learning_rate=3e-3)
DESIGN = MembershipDesign(guesses=(40,), fair_coins=True)


@pytest.mark.slow
def test_a_model_that_knows_its_notes_is_accused_and_one_that_never_saw_them_is_not() -> None:
    """Three attacks, 40 guesses, each paid for. A false alarm on the second model has probability at most 5%.

    Areas of 80 and 80 records by chance are ½ with a standard deviation of .046; seeds make this one run.
    """
    notes = list(dict.fromkeys(text for text, _ in corpora.notes(1000, seed=0)))
    candidates, population = notes[:CANDIDATES], notes[CANDIDATES : CANDIDATES + POPULATION]
    unseen = notes[CANDIDATES + POPULATION :][:OTHERS]
    coins = np.random.default_rng(1).random(CANDIDATES) < 0.5
    base = LanguageModel.load("builtin", "cpu")
    references = reference_signals(candidates, population, models=6, training=TRAINING, seed=2)
    members = [text for text, inside in zip(candidates, coins, strict=True) if inside]
    audits = {}
    for name, texts in (("knows", members), ("never saw", unseen)):
        said = signals(fine_tune(base, texts, TRAINING, seed=3), [*candidates, *population])
        target, others = said[:CANDIDATES], said[CANDIDATES:]
        scores = {
            "loss": mi.loss_threshold(target),
            "LiRA": mi.lira_online(target, references.signals, references.inclusion),
            "RMIA": mi.rmia_online(
                target, references.signals, references.inclusion, others, references.population, gamma=1.0
            ),
        }
        audits[name] = membership_audit(MembershipScores(scores, coins), DESIGN)
    knows, never_saw = audits["knows"], audits["never saw"]
    assert min(area["value"] for area in knows.details["areas"].values()) > 0.7
    assert knows.bounds[0].value > 0.5
    assert never_saw.bounds[0].value == 0
    assert max(abs(area["value"] - 0.5) for area in never_saw.details["areas"].values()) < 5 * 0.046
