"""The attacks on real runs of the generator with the embedded model: what they agree on, and what they find."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from neighbouring import scores_of_slots

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.guarantees import ExPostDP, PureDP
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.attacks.canaries.reconstruction import PREFIX, Canaries, reconstruct
from dpassay.attacks.private_inference.leave_one_out import LeaveOneOut, Loss, reruns
from dpassay.audits.games import leave_one_out_audit, reconstruction_audit
from dpassay.audits.verdict import decide
from dpassay.data.records import Record, with_content_ids
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.transcripts import Generation

KEY = bytes(range(32))
CANARIES = Canaries.draw(96, seed=12)
RECORDS = with_content_ids((text, None, None) for text in CANARIES.records())


@dataclass
class Played:
    mechanism: PrivateInference
    generation: Generation
    attack: LeaveOneOut
    costs: dict[int, tuple[float, float]] | None

    def rerun(self, index: int, model: LanguageModel, records: list[Record] = RECORDS) -> Loss:
        (loss,) = reruns(self.mechanism, records, [index], model, self.generation, KEY)
        return loss


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    torch.set_num_threads(1)
    return LanguageModel.load("builtin", device="cpu")


@pytest.fixture(scope="module")
def play(model: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Any:
    def run(*observers: Any, **changes: Any) -> Played:
        settings: dict[str, Any] = {
            "aggregate": "median",
            "clip": 10.0,
            "temperature": 1.2,
            "batch_size": 12,
            "tokens": 14,
            "records": len(RECORDS),
            "prefix": PREFIX,
        }
        mechanism = PrivateInference(**{**settings, **changes})
        attack = LeaveOneOut.of(mechanism, len(RECORDS))
        with Ledger.open(tmp_path_factory.mktemp("ledger") / "ledger.sqlite") as ledger:
            plan = mechanism.plan()
            entry = ledger.begin(
                "run", plan=plan, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={"noise": "recorded"}
            )
            source = Recorded(20260501)  # the same draws every time, so that no test needs luck
            generation = generate(
                mechanism, RECORDS, model, entry, key=KEY, observers=[attack, *observers], source=source
            )
            entry.finish()
            costs = None
            if mechanism.aggregate == "median" and mechanism.variant == "sound":
                realised = entry.realised()
                costs = {
                    slot: (realised[f"slot-{slot}"].epsilon, realised[f"slot-{slot}"].published)
                    for slot in range(mechanism.total_slots)
                }
        return Played(mechanism, generation, attack, costs)

    @functools.cache
    def known(**changes: Any) -> Played:
        return run(**changes)

    return lambda *observers, **changes: run(*observers, **changes) if observers else known(**changes)


def audit(played: Played, guarantee: Any, reruns: list[Loss]) -> Any:
    return leave_one_out_audit(
        played.attack.by_slot(),
        [loss.value for loss in reruns],
        records=len(RECORDS),
        guarantee=guarantee,
        adjacency=played.mechanism.adjacency,
        unit=played.mechanism.unit,
        errors=played.attack.errors_by_slot(),
        rerun_error=max((loss.error for loss in reruns), default=0.0),
        ex_post_by_slot=played.costs,
    )


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", ["median", "mean", "none"])
def test_a_row_left_out_is_a_record_left_out_of_the_sound_pipeline(
    aggregate: str, play: Any, model: LanguageModel
) -> None:
    played = play(aggregate=aggregate)
    losses, errors = played.attack.losses, played.attack.errors
    for index in (0, int(np.argmax(np.abs(losses)))):
        other = played.rerun(index, model)
        assert other.value == pytest.approx(losses[index], abs=other.error + errors[index])
        if aggregate != "none":
            assert other.error < 0.05
    assert np.abs(losses).max() > 10 * errors.max()


@pytest.mark.parametrize("top_k", [None, 1])
@pytest.mark.parametrize("aggregate", ["median", "mean"])
def test_a_centred_row_left_out_is_a_record_left_out(
    aggregate: str, top_k: int | None, play: Any, model: LanguageModel
) -> None:
    """A realised loss is the loss of the whole pipeline, and is within what is charged."""
    played = play(aggregate=aggregate, center="public", clip=3.0, top_k=top_k)
    losses, errors = played.attack.losses, played.attack.errors
    index = int(np.argmax(np.abs(losses)))
    other = played.rerun(index, model)
    assert other.value == pytest.approx(losses[index], abs=other.error + errors[index])
    assert np.abs(losses).max() > 10 * errors.max()
    assert other.error < 0.05
    if aggregate == "median":
        assert audit(played, ExPostDP(100.0), [other]).contradictions == ()
    else:
        assert np.abs(losses).max() <= 14 * 2 * 3 / (12 * 1.2)


def test_losses_stay_within_the_ledgers_ex_post_costs(play: Any, model: LanguageModel) -> None:
    played = play()
    result = audit(played, ExPostDP(100.0), [played.rerun(0, model)])
    assert result.contradictions == ()
    assert "in every one of" in result.conclusion
    assert max(played.attack.by_slot().values()) > 0


def test_noisy_counts_are_part_of_what_was_released(play: Any, model: LanguageModel) -> None:
    """With slot counts at ε = 2, one record's loss differs by exactly ±2 from its loss in the tokens alone."""
    played = play(slot_threshold=-100.0, slot_count_epsilon=2.0)
    difference = played.rerun(0, model).value - played.attack.losses[0]
    assert abs(difference) == pytest.approx(2.0, abs=0.05)


def test_noisy_counts_of_clusters_are_part_of_what_was_released(
    play: Any, model: LanguageModel, tmp_path: Path
) -> None:
    """With clusters at ε₀ = 2, one record's loss differs by ±2 from its loss in the tokens, given the counts."""
    path = tmp_path / "centres.safetensors"
    Centres.fit([f"{PREFIX}{i:05d}" for i in range(0, 100_000, 999)], 4).save(path)
    played = play(centres=path, kept_centres=2, cluster_count_epsilon=2.0)
    for index in (0, 1):
        other = played.rerun(index, model)
        difference = other.value - played.attack.losses[index]
        # Rounding of the noise's rate and of a few log-probabilities beside the stated error of both losses.
        assert abs(difference) == pytest.approx(2.0, abs=other.error + played.attack.errors[index] + 1e-9)


@pytest.mark.slow
def test_counts_are_those_of_units_where_contexts_hold_several(
    model: LanguageModel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """k = 2 with a threshold: the loss is that of the tokens plus ±ε, by the distance of the released counts."""
    epsilon = 0.75
    mechanism = PrivateInference(
        aggregate="median",
        clip=10.0,
        temperature=1.2,
        batch_size=6,
        records_per_context=2,
        tokens=3,
        records=len(RECORDS),
        prefix=PREFIX,
        slot_threshold=-100.0,
        slot_count_epsilon=epsilon,
    )
    with Ledger.open(tmp_path_factory.mktemp("ledger") / "ledger.sqlite") as ledger:
        entry = ledger.begin(
            "run", plan=mechanism.plan(), adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={"noise": "recorded"}
        )
        generation = generate(mechanism, RECORDS, model, entry, key=KEY, source=Recorded(7))
    assert generation.released_counts is not None
    exact = np.bincount(generation.assignment, minlength=mechanism.total_slots)
    signs = set()
    for index in range(0, len(RECORDS), 16):
        rest = RECORDS[:index] + RECORDS[index + 1 :]
        with_it, without = (
            scores_of_slots(mechanism, x, model, generation.transcript, key=KEY).sum() for x in (RECORDS, rest)
        )
        slot = generation.assignment[index]
        away = abs(int(generation.released_counts[slot]) - (exact[slot] - np.arange(2)))
        expected = epsilon * float(away[1] - away[0])
        signs.add(np.sign(expected))
        (loss,) = reruns(mechanism, RECORDS, [index], model, generation, KEY)
        # Scores of slots that do not change cancel; the rest is a handful of additions of numbers below 100.
        assert loss.value - (with_it - without) == pytest.approx(expected, abs=1e-9)
    assert signs <= {-1.0, 1.0}


@pytest.mark.slow
def test_a_rerun_without_protection_scores_the_law_that_is_sampled(play: Any, model: LanguageModel) -> None:
    """At a low temperature the sampler's floor decides: no token is less likely than e⁻⁴⁰ over V."""
    played = play(aggregate="none", temperature=0.05, batch_size=4)
    scores = scores_of_slots(played.mechanism, RECORDS, model, played.generation.transcript, key=KEY)
    assert scores.min() >= -played.mechanism.tokens * (40 + np.log(model.vocabulary_size))
    losses, errors = played.attack.losses, played.attack.errors
    index = int(np.argmax(np.abs(losses)))
    other = played.rerun(index, model)
    assert abs(other.value - losses[index]) <= errors[index] + 1e-3


def test_scoring_computes_the_logits_of_generation_to_the_bit(play: Any, model: LanguageModel) -> None:
    """So what scoring adds up is what generation drew from: the sum of the log-probabilities that observers saw."""
    seen: dict[int, list[float]] = {}

    class Sums:
        def step(self, *, slot: int, log_probability: float, **rest: Any) -> None:
            seen.setdefault(slot, []).append(log_probability)

    played = play(Sums())
    scores = scores_of_slots(played.mechanism, RECORDS, model, played.generation.transcript, key=KEY)
    assert played.generation.row_plan.exact
    assert scores.tolist() == [math.fsum(seen.get(slot, [])) for slot in range(played.mechanism.total_slots)]


@pytest.mark.slow
def test_pieces_of_a_fixed_size_leak_beyond_their_batch(play: Any, model: LanguageModel) -> None:
    """One record less shifts every later piece: the pipeline's loss is not that of one batch."""
    played = play(variant="as_published", batch_size=5, records=40)
    within = np.abs(played.attack.losses)
    worst = max(abs(played.rerun(index, model).value) for index in range(0, len(RECORDS), 12))
    assert worst > within.max() + 1


@pytest.mark.slow
def test_without_protection_the_keys_come_out(play: Any, model: LanguageModel) -> None:
    """The positive control refutes pure DP, by reconstruction and by leave-one-out loss."""
    played = play(aggregate="none", temperature=1.0, batch_size=4, tokens=42)
    result = reconstruct(played.generation.documents, CANARIES, [record.text for record in RECORDS])
    assert result.asked > 60
    assert result.reproduced > 0.7 * result.asked
    arguments = {"guarantee": PureDP(1.0), "adjacency": Adjacency.ADD_REMOVE, "unit": Unit()}
    reconstruction = reconstruction_audit(result, control=result, **arguments)  # type: ignore[arg-type]
    assert reconstruction.controls_passed
    assert reconstruction.difference is not None
    assert reconstruction.difference.lower > 0
    for bounds in (reconstruction.bounds, audit(played, PureDP(1.0), []).bounds):
        assert decide(PureDP(1.0), adjacency="add_remove", unit=Unit(), bounds=bounds).name == "REFUTED"


def test_what_leave_one_out_cannot_see_is_refused() -> None:
    settings: dict[str, Any] = {"clip": 9.0, "temperature": 1.5, "batch_size": 8, "tokens": 4, "records": 64}
    with pytest.raises(ValueError, match="use reruns"):
        LeaveOneOut.of(PrivateInference(aggregate="mean", anchor=True, **settings), 64)
    with pytest.raises(ValueError, match="use reruns"):
        LeaveOneOut.of(PrivateInference(aggregate="median", records_per_context=2, **settings), 64)
