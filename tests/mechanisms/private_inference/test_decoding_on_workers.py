"""Slots that workers decode: the same documents, costs and ledger as by one process, whoever is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask_processes import dask
from little_inference import KEY, RECORDS, mechanism
from pieces_of_work import process_of

from dpassay.accounting.ledger.run import Run
from dpassay.attacks.private_inference.leave_one_out import LeaveOneOut, Loss, reruns
from dpassay.audits.games.replay import private_inference as replay
from dpassay.audits.games.replay.record_replay import Finding
from dpassay.base.errors import InputError
from dpassay.data.records import Record
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor, find, forget
from dpassay.mechanisms.compute.workers import executor
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.model_reference import ModelReference
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.private_inference import slot_decoder
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.slot_decoder import Decoded, Job, Order, Sources, bits_of, decode
from dpassay.mechanisms.private_inference.slot_inputs import SlotInputs
from dpassay.mechanisms.private_inference.transcripts import Generation

CHANGES: dict[str, Any] = {"tokens": 10, "context_tokens": 12, "document_tokens": 4}


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel.load(device="cpu")


@pytest.fixture(scope="module")
def two() -> Iterator[Executor]:
    with executor(2, None) as workers:
        yield workers


def write(
    run: Run, model: LanguageModel, where: Executor = THIS_PROCESS, **options: Any
) -> tuple[Generation, list[Any]]:
    """A run of a mechanism with recorded noise, and what its ledger holds."""
    chosen = options.pop("chosen")
    generation = generate(chosen, RECORDS, model, run, key=KEY, source=Recorded(3), executor=where, **options)
    run.finish()
    outcomes = [run.outcome(f"tokens/{step}") for step in range(chosen.tokens)]
    assert None not in outcomes
    return generation, [outcome.value for outcome in outcomes if outcome is not None]


def same(first: tuple[Generation, list[Any]], second: tuple[Generation, list[Any]]) -> None:
    assert first[0].documents == second[0].documents
    assert first[0].transcript == second[0].transcript
    assert first[1] == second[1]
    if first[0].token_costs is not None:
        assert second[0].token_costs is not None
        assert first[0].token_costs.tobytes() == second[0].token_costs.tobytes()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aggregate": "mean", "clip": 3.0},
        {"aggregate": "none"},
        {"variant": "as_published", "aggregate": "mean", "clip": 3.0},
        {"slot_threshold": 1.0, "slot_count_epsilon": 1.0},
    ],
    ids=["median", "mean", "unprotected", "published", "counts"],
)
def test_documents_are_those_of_one_process(
    changes: dict[str, Any], model: LanguageModel, two: Executor, runs: Any
) -> None:
    chosen = mechanism(**CHANGES | changes)
    alone = write(runs.begin(chosen, noise="recorded"), model, chosen=chosen)
    assert alone[0].documents
    same(alone, write(runs.begin(chosen, noise="recorded"), model, two, chosen=chosen))


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4])
def test_documents_do_not_depend_on_the_number_of_workers(count: int, model: LanguageModel, runs: Any) -> None:
    chosen = mechanism(**CHANGES | {"tokens": 40})
    alone = write(runs.begin(chosen, noise="recorded"), model, chosen=chosen)
    with executor(count, None) as workers:
        same(alone, write(runs.begin(chosen, noise="recorded"), model, workers, chosen=chosen))


def test_groups_are_made_for_the_workers_that_there_were(model: LanguageModel, two: Executor, runs: Any) -> None:
    """A run that began on two workers is finished by one process, with the same groups of slots."""
    chosen = mechanism(**CHANGES)
    alone = write(runs.begin(chosen, noise="recorded"), model, chosen=chosen)
    run = runs.begin(chosen, noise="recorded", name="moved")
    stop_after(
        run, 7, lambda: generate(chosen, RECORDS, model, run, key=KEY, source=Recorded(3), executor=two, rows_at_once=3)
    )
    again = runs.begin(chosen, noise="recorded", name="moved")
    assert 0 < len([step for step in range(20) if again.outcome(f"tokens/{step}")]) < 20
    generation = generate(chosen, RECORDS, model, again, key=KEY, source=Recorded(3))
    again.finish()
    assert generation.documents == alone[0].documents
    assert again.event() == chosen.plan()


def stop_after(run: Run, steps: int, work: Any) -> None:
    """Interrupts a run when it has made so many steps in its ledger."""
    original, count = run.step, 0

    def step(**parts: Any) -> None:
        nonlocal count
        count += 1
        if count > steps:
            raise KeyboardInterrupt
        original(**parts)

    run.step = step  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        work()


@pytest.mark.parametrize("changes", [{}, {"aggregate": "none"}], ids=["median", "unprotected"])
def test_losses_are_those_of_one_process(
    changes: dict[str, Any], model: LanguageModel, two: Executor, runs: Any
) -> None:
    """Observers see each token once, wherever it is decoded, and again when a finished run is replayed."""
    chosen = mechanism(**CHANGES | changes)
    attacks = [LeaveOneOut.of(chosen, len(RECORDS)) for _ in range(3)]
    write(runs.begin(chosen, noise="recorded"), model, chosen=chosen, observers=[attacks[0]])
    write(runs.begin(chosen, noise="recorded", name="one"), model, two, chosen=chosen, observers=[attacks[1]])
    again = runs.begin(chosen, noise="recorded", name="one")
    generate(chosen, RECORDS, model, again, key=KEY, source=Recorded(4), executor=two, observers=[attacks[2]])
    assert np.abs(attacks[0].losses).max() > 0
    for attack in attacks[1:]:
        assert attack.losses.tobytes() == attacks[0].losses.tobytes()
        assert attack.by_slot() == attacks[0].by_slot()


AUDITED: list[dict[str, Any]] = [
    {},
    {"aggregate": "mean", "clip": 3.0, "slot_threshold": 1.0, "slot_count_epsilon": 1.0},
    {"aggregate": "none"},
]


def audited(
    generation: Generation, chosen: PrivateInference, model: LanguageModel, where: Executor
) -> tuple[list[Loss], list[Finding], list[tuple[int, int]]]:
    """Losses without some records, what replays of neighbours find, and the steps that were shown."""
    shown: list[tuple[int, int]] = []
    given = (model, generation)
    losses = reruns(chosen, RECORDS, range(0, 12, 2), *given, KEY, lambda *step: shown.append(step), where)
    findings = []
    if chosen.aggregate != "none":
        near = [RECORDS[1:], RECORDS[:-1], [*RECORDS, Record("new", "3121", "a", "new")]]
        findings = replay.inference_findings(chosen, RECORDS, near, *given, key=KEY, executor=where)
    return losses, findings, shown


@pytest.fixture
def nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token exceeds its charge, so that what replays measure is found."""
    monkeypatch.setattr(replay._Audit, "_eta", lambda _: -1.0)


@pytest.mark.parametrize("changes", AUDITED, ids=["median", "mean", "unprotected"])
def test_audits_are_those_of_one_process(
    changes: dict[str, Any], model: LanguageModel, two: Executor, runs: Any, nothing_allowed: None
) -> None:
    chosen = mechanism(**CHANGES | changes)
    generation, _ = write(runs.begin(chosen, noise="recorded"), model, chosen=chosen)
    losses, findings, shown = audited(generation, chosen, model, THIS_PROCESS)
    assert any(loss.value for loss in losses)
    assert bool(findings) == (chosen.aggregate != "none")
    dies = changes is AUDITED[0]
    process, original, pieces = two.submit(process_of, 0).result(), two.submit, 0

    def submit(*given: Any, **options: Any) -> Any:
        """A worker dies while it has pieces."""
        nonlocal pieces
        pieces += 1
        if dies and pieces == 4:
            os.kill(process, signal.SIGKILL)
        return original(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two, "submit", submit)
        assert audited(generation, chosen, model, two)[:2] == (losses, findings)
    assert pieces >= (4 if dies else 2)
    assert shown[-1][0] == shown[-1][1]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
def test_audits_do_not_depend_on_the_number_of_workers(
    count: int, model: LanguageModel, runs: Any, nothing_allowed: None
) -> None:
    chosen = mechanism(**CHANGES | {"tokens": 40})
    generation, _ = write(runs.begin(chosen, noise="recorded"), model, chosen=chosen)
    with executor(count, None) as workers:
        assert audited(generation, chosen, model, workers)[:2] == audited(generation, chosen, model, THIS_PROCESS)[:2]


def test_a_worker_that_dies_costs_nothing(model: LanguageModel, two: Executor, runs: Any) -> None:
    """The other one does its part; a new process starts in its place."""
    chosen = mechanism(**CHANGES)
    alone = write(runs.begin(chosen, noise="recorded"), model, chosen=chosen)
    run = runs.begin(chosen, noise="recorded")
    original, steps = run.step, 0

    def step(**parts: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == 5:
            os.kill(two.submit(process_of, 0, near="any").result(), signal.SIGKILL)
        original(**parts)

    run.step = step
    same(alone, write(run, model, two, chosen=chosen))
    assert run.event() == chosen.plan()


@pytest.mark.slow
def test_fifty_workers_that_die_cost_nothing(model: LanguageModel, runs: Any, tmp_path: Path) -> None:
    killed(tmp_path, model, runs, kills=50, tokens=220)


def killed(folder: Path, model: LanguageModel, runs: Any, *, kills: int, tokens: int) -> None:
    """Kills workers at any point of a run; each time another one starts. What is released and charged is the same."""
    chosen = mechanism(**CHANGES | {"tokens": tokens})
    alone = write(runs.begin(chosen, noise="recorded"), model, chosen=chosen)
    run = runs.begin(chosen, noise="recorded")
    original, every, steps, deaths = run.step, tokens // (kills + 1), 0, 0
    with dask(folder / "dask", 2) as cluster, executor(None, cluster.address) as workers:

        def step(**parts: Any) -> None:
            nonlocal steps, deaths
            steps += 1
            if steps % every == 0 and deaths < kills:
                deaths += 1
                cluster.add_worker()
                cluster.wait_for_workers(3)
                threading.Timer(0.03 * (deaths % 7), cluster.kill_worker).start()
            original(**parts)

        run.step = step
        same(alone, write(run, model, workers, chosen=chosen))
    assert deaths == kills
    assert run.event() == chosen.plan()


def test_a_worker_with_another_model(model: LanguageModel, two: Executor, runs: Any, tmp_path: Path) -> None:
    other = ModelReference(str(tmp_path / "nowhere"), model.fingerprint, model.dtype, "cpu")
    with pytest.raises(InputError, match=r"worker on .*nowhere"):
        two.submit(ModelReference.load, other).result()
    other = ModelReference("builtin", "0" * 64, model.dtype, "cpu")
    with pytest.raises(InputError, match="another model builtin than this machine"):
        two.submit(ModelReference.load, other).result()


def test_a_worker_that_computes_other_bits_decodes_nothing(model: LanguageModel, two: Executor) -> None:
    """Who decodes a slot follows from the rows of the slots before it: one record would change other slots' logits."""
    chosen = mechanism(**CHANGES)
    plan, reference = chosen.row_plan(model), ModelReference.of(model)
    assert two.submit(bits_of, reference, plan).result() == bits_of(model, plan) != ""
    job = Job(chosen, reference, plan, "0" * 64, Recorded(1))
    begin = Order("other bits", 0, (), ((None,),), begin=(job, ()))
    with pytest.raises(InputError, match="computes other logits, in some bits"):
        two.submit(decode, begin).result()


def test_a_decoder_that_expected_its_draw(model: LanguageModel) -> None:
    """It goes on with the logits that it computed meanwhile, as one does that waited; if another token is committed, or
    none, it is built again."""
    chosen = mechanism(**CHANGES)
    plan = chosen.row_plan(model)
    inputs = SlotInputs(chosen, RECORDS, model, KEY)
    items = tuple(inputs.slot(slot) for slot in range(2))
    none: Sources = (None, None)

    def job(where: LanguageModel | ModelReference) -> Job:
        return Job(chosen, where, plan, bits_of(model, plan), Recorded(1))

    def ask(name: str, first: int, *tokens: tuple[int, ...], begin: Job | None = None) -> Decoded:
        start = None if begin is None else (begin, items)
        reply = decode(Order(name, first, tokens, (none,) * (len(tokens) + 1), begin=start))
        slot_decoder._ahead.submit(int).result()  # what it computes meanwhile is done
        return reply

    def expected(name: str) -> bool:
        return bool(find(name).is_ahead(None))

    tokens: list[tuple[int, ...]] = []
    for step in range(chosen.tokens):
        drawn = [
            ask(name, max(0, step - 1), *tokens[-1:], begin=job(where) if step == 0 else None)
            for name, where in (("waits", model), ("expects", ModelReference.of(model)))
        ]
        assert drawn[0] == drawn[1]
        assert len(drawn[0].tokens) == 2
        assert not expected("waits")
        assert expected("expects") == (step + 1 < chosen.tokens)
        tokens.append(drawn[0].tokens)
    assert (chosen.document_tokens or 0) < chosen.tokens  # rows were reset to their contexts

    reference = job(ModelReference.of(model))
    first = ask("another", 0, begin=reference).tokens
    other = (first[0] ^ 1, first[1])
    assert ask("another", 0, other).lost
    assert ask("another", 0, other, begin=reference) == ask("waited", 0, other, begin=job(model))
    assert ask("another", 1).lost  # asked again for a token that was drawn
    forget("waits", "expects", "another", "waited")


def test_a_run_is_not_finished_where_other_bits_are_computed(
    model: LanguageModel, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is finished may be read anywhere."""
    chosen = mechanism(**CHANGES)
    run = runs.begin(chosen, noise="recorded", name="one")
    given: dict[str, Any] = {"key": KEY, "source": Recorded(3)}
    stop_after(run, 5, lambda: generate(chosen, RECORDS, model, run, **given))
    monkeypatch.setattr(model, "_bits", dict.fromkeys(model._bits, "1" * 64))
    again = runs.begin(chosen, noise="recorded", name="one")
    with pytest.raises(RunMismatchError, match="other logits are computed here, in some bits"):
        generate(chosen, RECORDS, model, again, **given)
    monkeypatch.undo()
    generate(chosen, RECORDS, model, again, **given)
    monkeypatch.setattr(model, "_bits", dict.fromkeys(model._bits, "1" * 64))
    generate(chosen, RECORDS, model, again, **given)
    again.finish()


def test_observers_must_come_in_parts(model: LanguageModel, two: Executor, runs: Any) -> None:
    class Watcher:
        def step(self, **seen: Any) -> None: ...

    chosen = mechanism(**CHANGES)
    with pytest.raises(ValueError, match="cannot be divided among workers"):
        generate(
            chosen,
            RECORDS,
            model,
            runs.begin(chosen, noise="recorded"),
            key=KEY,
            source=Recorded(1),
            executor=two,
            observers=[Watcher()],
        )
