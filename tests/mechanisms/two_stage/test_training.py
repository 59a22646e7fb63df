"""Training in its ledger: what it charges, what it resumes from, and what a row can move."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from small_models import save_model

from dpassay.accounting import Adjacency, ApproxDP, account, calibrate, events
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.base.arrays import Floats, Integers
from dpassay.data.table_schema import Schema
from dpassay.data.tables import Table
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.randomness import OsEntropy
from dpassay.mechanisms.two_stage import training as module
from dpassay.mechanisms.two_stage.descent import Checkpoints
from dpassay.mechanisms.two_stage.generator import TwoStage
from dpassay.mechanisms.two_stage.training import TwoStageTraining

SCHEMA = Schema.model_validate(
    {
        "columns": [
            {"name": "age", "type": "number", "low": 0, "high": 99},
            {"name": "sex", "type": "category", "values": ["f", "m"]},
        ]
    }
)
SMALL: dict[str, Any] = {
    "noise_multiplier": 1.0,
    "records": 12,
    "batch_size": 4,
    "steps": 5,
    "first_steps": 3,
    "learning_rate": 1e-2,
    "shuffle": True,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, "gpt2")
    return LanguageModel.load(folder)


def table(count: int = 12, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    return Table(SCHEMA, [SCHEMA.uniform(rng) for _ in range(count)], [f"id-{index}" for index in range(count)])


class Watched(OsEntropy):
    """Entropy that notes sizes of noise, and may raise before the noise of a step."""

    def __init__(self, *, dies_at: int | None = None) -> None:
        self.drawn, self.batches, self._dies_at = 0, list[Integers](), dies_at

    def rounded_normals(self, size: int, bits: int) -> Integers:
        if self.drawn == self._dies_at:
            raise KeyboardInterrupt
        self.drawn += 1
        return super().rounded_normals(size, bits)

    def bernoulli(self, probabilities: Any) -> Any:
        result = super().bernoulli(probabilities)
        self.batches.append(np.flatnonzero(result))
        return result


def trained(
    folder: Path, model: LanguageModel, mechanism: TwoStage, rows: Table, source: OsEntropy, *, seconds: float = 0.0
) -> Any:
    """A call that trains in a folder's ledger, and finishes the run."""
    folder.mkdir(exist_ok=True)
    training = TwoStageTraining(mechanism, model, rows, folder, source=source, seconds=seconds)
    with Ledger.open(folder / "ledger.sqlite", anchor=folder / "anchor") as ledger:
        run = ledger.begin("run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={})
        result = training.run(run)
        run.finish()
    return result


def charges(folder: Path) -> tuple[Any, list[str]]:
    with Ledger.open(folder / "ledger.sqlite", anchor=folder / "anchor") as ledger:
        run = ledger.run("run")
        keys = [f"steps/{step}" for step in range(50) if run.charged(f"steps/{step}")]
        return run.event(), keys


def test_a_run_charges_its_plan_one_step_at_a_time(tmp_path: Path, model: LanguageModel) -> None:
    mechanism, source = TwoStage(**SMALL), Watched()
    result = trained(tmp_path / "run", model, mechanism, table(), source)
    event, keys = charges(tmp_path / "run")
    step = dp_event.PoissonSampledDpEvent(4 / 12, dp_event.GaussianDpEvent(1.0))
    assert event == mechanism.plan() == dp_event.SelfComposedDpEvent(step, 5)
    assert keys == [f"steps/{step}" for step in range(5)]
    assert source.drawn == 5
    assert result.exact
    left = sorted(path.name for path in (tmp_path / "run").glob("*.safetensors"))
    assert left == ["checkpoint-5.safetensors", "first-3.safetensors"]


ALIKE: dict[str, Any] = {"records": 20_000, "batch_size": 256, "steps": 300}


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.7, 1.5])
def test_epsilon_agrees_with_other_accountants(noise: float) -> None:
    """Within their own errors: RDP lies above, PLD and Opacus' PRV within 1 % of ours."""
    from dp_accounting.pld import PLDAccountant
    from opacus.accountants import PRVAccountant
    from opacus.accountants import RDPAccountant as OpacusRdp

    mechanism = TwoStage(noise_multiplier=noise, **ALIKE)
    event = mechanism.plan()
    best = account(event, delta=1e-6, adjacency=Adjacency.ADD_REMOVE).value
    history = [(noise, mechanism.rate, mechanism.steps)]
    by_rdp, by_prv = OpacusRdp(), PRVAccountant()
    by_rdp.history = by_prv.history = history
    assert RdpAccountant().compose(event).get_epsilon(1e-6) >= best
    assert by_rdp.get_epsilon(1e-6) >= best
    assert PLDAccountant().compose(event).get_epsilon(1e-6) == pytest.approx(best, rel=0.01)
    assert by_prv.get_epsilon(1e-6, eps_error=0.001) == pytest.approx(best, rel=0.01)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Optimal order")
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_calibrated_noise_is_that_of_opacus_and_of_the_command(epsilon: float) -> None:
    """Opacus' RDP asks for more noise, its PRV for little more; `dpassay calibrate dp-sgd` for the same."""
    from opacus.accountants.utils import get_noise_multiplier

    rate, steps = ALIKE["batch_size"] / ALIKE["records"], ALIKE["steps"]
    ours = calibrate(
        lambda noise: TwoStage(noise_multiplier=noise, **ALIKE).plan(),
        ApproxDP(epsilon, 1e-6),
        adjacency="add_remove",
        decreasing=True,
        bracket=(0.1, 100.0),
    ).value
    of_opacus = {
        accountant: get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=1e-6,
            sample_rate=rate,
            steps=steps,
            accountant=accountant,
            epsilon_tolerance=1e-3,
        )
        for accountant in ("rdp", "prv")
    }
    assert of_opacus["rdp"] > ours
    assert of_opacus["prv"] == pytest.approx(ours, rel=0.01)  # whose ε is .01 off
    asked = ("--target-epsilon", epsilon, "--delta", 1e-6, "--sampling-probability", rate, "--steps", steps)
    done = run("calibrate", "dp-sgd", *asked, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["value"] == pytest.approx(ours, rel=1e-3)  # the tolerance of both


@pytest.mark.slow
def test_every_death_is_resumed_with_the_plan_charged_once(tmp_path: Path, model: LanguageModel) -> None:
    """Before the noise of some steps; with a checkpoint after every step and with none but the last."""
    for seconds in (0.0, 1e9):
        for dies_at in (0, 2, 4):
            folder, mechanism, rows = tmp_path / f"{seconds}-{dies_at}", TwoStage(**SMALL), table()
            with pytest.raises(KeyboardInterrupt):
                trained(folder, model, mechanism, rows, Watched(dies_at=dies_at), seconds=seconds)
            _, keys = charges(folder)
            assert len(keys) == dies_at + 1  # charged before it is sampled
            source = Watched()
            trained(folder, model, mechanism, rows, source, seconds=seconds)
            event, keys = charges(folder)
            assert event == mechanism.plan()
            assert source.drawn == (5 - dies_at if seconds == 0 else 5)


@pytest.mark.grid
@pytest.mark.parametrize("when", ["before the file", "before the commit", "after the commit"])
def test_a_death_between_a_step_and_its_commit(
    tmp_path: Path, model: LanguageModel, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """What was not committed is made anew: with another batch and other noise, and nothing of the old state."""
    folder, mechanism, rows = tmp_path / "run", TwoStage(**SMALL), table()
    original: dict[str, Callable[..., Any]] = {
        "save": Checkpoints.save,
        "commit": module.commit,
        "keep": Checkpoints.keep,
    }

    def dying(name: str, at: int) -> Callable[..., Any]:
        calls = 0

        def call(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                raise KeyboardInterrupt
            return original[name](*given)

        return call

    with monkeypatch.context() as patch:
        if when == "before the file":
            patch.setattr(Checkpoints, "save", dying("save", 6))  # three of the first stage
        elif when == "before the commit":
            patch.setattr(module, "commit", dying("commit", 3))
        else:
            patch.setattr(Checkpoints, "keep", dying("keep", 6))
        with pytest.raises(KeyboardInterrupt):
            trained(folder, model, mechanism, rows, Watched())
    source = Watched()
    trained(folder, model, mechanism, rows, source)
    assert charges(folder)[0] == mechanism.plan()
    assert source.drawn == (3 if when != "after the commit" else 2)
    left = sorted(path.name for path in folder.glob("*.safetensors"))
    assert left == ["checkpoint-5.safetensors", "first-3.safetensors"]


@pytest.mark.slow
def test_the_first_stage_resumes_and_ends_in_the_same_weights(
    tmp_path: Path, model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no noise, so an interrupted one is compared with one that was not, at the first step of the second."""
    mechanism, seen = TwoStage(**SMALL), []

    def stopped(self: TwoStageTraining, step: int, batch: Integers) -> Floats:
        seen.append([weight.detach().clone() for weight in self.gradients.parameters])
        raise KeyboardInterrupt

    monkeypatch.setattr(TwoStageTraining, "gradient", stopped)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "one", model, mechanism, table(), Watched())
    original = Checkpoints.save

    def once(self: Checkpoints, step: int, *given: Any) -> str:
        if step == 2 and not (self.folder / "died").exists():
            (self.folder / "died").touch()
            raise KeyboardInterrupt
        return original(self, step, *given)

    monkeypatch.setattr(Checkpoints, "save", once)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "two", model, mechanism, table(), Watched())
    assert len(seen) == 2
    assert all((a == b).all() for a, b in zip(*seen, strict=True))


@pytest.mark.grid
@pytest.mark.parametrize(
    "changed",
    [{"batch_size": 5}, {"clip": 2.0}, {"steps": 6}, {"seed": 1}, {"learning_rate": 0.5}, "rows", "ids", "schema"],
)
def test_another_run_is_not_resumed(tmp_path: Path, model: LanguageModel, changed: Any) -> None:
    folder, rows = tmp_path / "run", table()
    with pytest.raises(KeyboardInterrupt):
        trained(folder, model, TwoStage(**SMALL), rows, Watched(dies_at=2))
    mechanism = TwoStage(**SMALL | changed) if isinstance(changed, dict) else TwoStage(**SMALL)
    if changed == "rows":
        rows = dataclasses.replace(rows, rows=[rows.rows[1], *rows.rows[1:]])
    elif changed == "ids":
        rows = dataclasses.replace(rows, ids=[*rows.ids[:-1], "other"])
    elif changed == "schema":
        wider = SCHEMA.model_dump() | {"columns": [{**SCHEMA.columns[0].model_dump(), "high": 100}, SCHEMA.columns[1]]}
        rows = dataclasses.replace(rows, schema=Schema.model_validate(wider))
    with pytest.raises((RunMismatchError, ValueError)):
        trained(folder, model, mechanism, rows, Watched())
    assert len(charges(folder)[1]) == 3


def test_a_lost_checkpoint_is_not_forgotten(tmp_path: Path, model: LanguageModel) -> None:
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        trained(folder, model, TwoStage(**SMALL), table(), Watched(dies_at=3))
    (folder / "checkpoint-3.safetensors").unlink()
    with pytest.raises(RunMismatchError, match="whose steps are charged"):
        trained(folder, model, TwoStage(**SMALL), table(), Watched())


def test_batches_are_poisson_samples(tmp_path: Path, model: LanguageModel) -> None:
    """Sizes vary, empty ones are steps too: of 12 rows with rate 1/12, 35 % of the batches are empty."""
    mechanism = TwoStage(**SMALL | {"batch_size": 1, "steps": 60, "first_stage": "none"})
    source = Watched()
    trained(tmp_path / "run", model, mechanism, table(), source, seconds=1e9)
    sizes = [len(batch) for batch in source.batches]
    assert len(sizes) == source.drawn == 60
    assert 5 < sizes.count(0) < 40  # outside with probability below 1e-5
    assert max(sizes) > 1


class Sums(Watched):
    """Entropy without noise and with given batches: the clean sums of each step can be compared."""

    def bernoulli(self, probabilities: Any) -> Any:
        return np.ones(len(probabilities), dtype=np.bool_)


def clean_gradients(folder: Path, model: LanguageModel, mechanism: TwoStage, rows: Table) -> Floats:
    """The exact gradient of the first step with all rows, in units of the clip."""
    training = TwoStageTraining(mechanism, model, rows, folder, source=Sums())
    training.gradients.find(mechanism.batch_size)
    try:
        return training.gradient(0, np.arange(len(rows.rows))) * mechanism.batch_size / mechanism.clip
    finally:
        training.gradients.close()


@pytest.mark.grid
@pytest.mark.parametrize("loss", ["row", "batch"])
def test_neighbouring_tables_move_a_sum_by_at_most_the_clip(tmp_path: Path, model: LanguageModel, loss: Any) -> None:
    """All tables with one of 8 rows removed, or replaced by a long one; the published loss moves sums by more.

    A clip that is half of the gradients' length makes both the length and the direction of a sum visible.
    """
    mechanism = TwoStage(
        **SMALL
        | {"noise_multiplier": 0.0, "clip": 0.05, "loss": loss, "variant": "sound" if loss == "row" else "as_published"}
    )
    rows = table(8)
    whole = clean_gradients(tmp_path, model, mechanism, rows)
    long = dataclasses.replace(rows, rows=[("99", "m"), *rows.rows[1:]])
    replaced = np.linalg.norm(clean_gradients(tmp_path, model, mechanism, long) - whole)
    removed = []
    for index in range(8):
        rest = Table(SCHEMA, [*rows.rows[:index], *rows.rows[index + 1 :]], [*rows.ids[:index], *rows.ids[index + 1 :]])
        removed.append(np.linalg.norm(clean_gradients(tmp_path, model, mechanism, rest) - whole))
    slack = 8 * 2**-20
    if loss == "row":
        assert max(removed) <= 1 + slack
        assert replaced <= 2 + slack
        assert min(removed) > 0.5
    else:
        assert max(removed) > 1.001


@pytest.mark.parametrize(
    ("given", "event"),
    [
        ({}, dp_event.PoissonSampledDpEvent(4 / 12, dp_event.GaussianDpEvent(1.0))),
        ({"adjacency": Adjacency.REPLACE_ONE}, dp_event.PoissonSampledDpEvent(4 / 12, dp_event.GaussianDpEvent(2.0))),
        ({"batch_size": 12}, dp_event.GaussianDpEvent(1.0)),
        ({"noise_multiplier": 0.0}, dp_event.NonPrivateDpEvent()),
        ({"loss": "batch", "variant": "as_published"}, dp_event.NonPrivateDpEvent()),
        ({"sampling": "shuffled", "variant": "as_published"}, dp_event.NonPrivateDpEvent()),
    ],
)
def test_events(given: dict[str, Any], event: Any) -> None:
    mechanism = TwoStage(**SMALL | given)
    assert mechanism.plan() == events.compose([(event, 5)])
    assert mechanism.releasable == (not given or "adjacency" in given or "batch_size" in given)


def test_an_interrupted_shuffled_epoch_may_use_a_row_twice(tmp_path: Path, model: LanguageModel) -> None:
    """So nothing is proven for shuffled batches, under replace_one, too: after a resume, the order is another one."""
    mechanism = TwoStage(
        **SMALL | {"sampling": "shuffled", "variant": "as_published", "adjacency": Adjacency.REPLACE_ONE}
    )
    assert mechanism.plan() == events.compose([(dp_event.NonPrivateDpEvent(), 5)])
    assert mechanism.published_plan() == TwoStage(**SMALL | {"adjacency": Adjacency.REPLACE_ONE}).plan()
    training = TwoStageTraining(mechanism, model, table(), tmp_path)
    repeated = 0
    for _ in range(20):
        used = [next(training.batches(0)), next(training.batches(1)), next(training.batches(2))]
        repeated += len(set(np.concatenate(used).tolist())) < 12
    training.gradients.close()
    assert repeated > 10


def test_shuffled_batches_are_those_of_epochs(tmp_path: Path, model: LanguageModel) -> None:
    """Each row is in exactly one batch of each epoch that is not interrupted."""
    mechanism = TwoStage(**SMALL | {"sampling": "shuffled", "variant": "as_published", "steps": 6})
    training = TwoStageTraining(mechanism, model, table(), tmp_path)
    batches = list(training.batches(0))
    training.gradients.close()
    assert [len(batch) for batch in batches] == [4] * 6
    for epoch in (batches[:3], batches[3:]):
        assert sorted(np.concatenate(epoch)) == list(range(12))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"batch_size": 13}, "batch_size must be at most records"),
        ({"clip": 0.0}, "clip"),
        ({"clip": 1e-31}, "clip must be from 1e-30 to 1e"),
        ({"noise_multiplier": 1e-9}, "noise_multiplier must be 0, or from"),
        ({"noise_multiplier": 1e15}, "noise_multiplier must be 0, or from"),
        ({"value_weight": 1.5}, "value_weight"),
        ({"first_steps": 0}, "first_steps must be at least 1"),
        ({"loss": "batch"}, "are for variant as_published"),
        ({"sampling": "shuffled"}, "are for variant as_published"),
        ({"serializer": "json"}, "serializer"),
        ({"adjacency": Adjacency.ZERO_OUT}, "adjacency must be add_remove or replace_one"),
    ],
)
def test_invalid_parameters_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TwoStage(**SMALL | given)
