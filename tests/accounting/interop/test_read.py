"""Files of other libraries: what is read is what the libraries wrote, and what they do not record is never guessed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from dp_accounting import dp_event
from opacus.accountants import GaussianAccountant, PRVAccountant, RDPAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from dpassay.accounting import account, events
from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.conversions.formulas import epsilon_from_gdp
from dpassay.accounting.interop.conditions import Condition, Normalizer, Sampler
from dpassay.accounting.interop.read import read_state
from dpassay.accounting.interop.state import RepeatedEvent, SampledGaussian, State, Stated, check_used, read_as

HISTORY = [(1.0, 0.01, 300), (1.25, 0.01, 200)]


def opacus_file(folder: Path, form: str, kind: Any = RDPAccountant) -> Path:
    accountant = kind()
    for noise, rate, steps in HISTORY if kind is not GaussianAccountant else HISTORY[:1]:
        for _ in range(steps):
            accountant.step(noise_multiplier=noise, sample_rate=rate)
    state = accountant.state_dict()
    path = folder / f"state.{form}"
    match form:
        case "pt":
            torch.save(
                {"module_state_dict": torch.nn.Linear(2, 2).state_dict(), "privacy_accountant_state_dict": state}, path
            )
        case "alone":
            torch.save(state, path)
        case _:
            path.write_text(json.dumps(state))
    return path


@pytest.mark.filterwarnings("ignore:GDP accounting is experimental")
@pytest.mark.parametrize("form", ["pt", "alone", "json"])
@pytest.mark.parametrize("kind", [RDPAccountant, GaussianAccountant, PRVAccountant])
def test_states_of_opacus(tmp_path: Path, form: str, kind: Any) -> None:
    state = read_state(opacus_file(tmp_path, form, kind))
    assert state.library == "Opacus"
    assert state.parts == tuple(SampledGaussian(*entry) for entry in HISTORY[: len(state.parts)])
    assert len(state.parts) == (1 if kind is GaussianAccountant else 2)
    assert (state.adjacency, state.sampler, state.delta, state.records) == (None, None, None, None)


def test_epsilon_of_a_state_is_that_of_its_library(tmp_path: Path) -> None:
    """For Poisson samples: Opacus' RDP lies above, its PRV within its error of ours."""
    state = read_state(opacus_file(tmp_path, "pt"))
    given = Stated(adjacency=Adjacency.ADD_REMOVE, sampler=Sampler.POISSON, normalizer=Normalizer.PUBLIC)
    reading = read_as(state, given)
    ours = account(reading.event, adjacency=reading.adjacency, delta=1e-5).value
    by_rdp, by_prv = RDPAccountant(), PRVAccountant()
    by_rdp.history, by_prv.history = HISTORY, HISTORY
    assert by_rdp.get_epsilon(1e-5) >= ours
    assert by_prv.get_epsilon(1e-5) == pytest.approx(ours, abs=0.02)


GAUSSIAN = dp_event.GaussianDpEvent(1.0)
ONE = State(library="x", what="x", parts=(SampledGaussian(1.0, 0.1, 25),))


@pytest.mark.parametrize(
    ("adjacency", "sampler", "event"),
    [
        ("add_remove", "poisson", dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.1, GAUSSIAN), 25)),
        ("replace_one", "poisson", dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.1, GAUSSIAN), 25)),
        *(
            (
                adjacency,
                "fixed",
                dp_event.SelfComposedDpEvent(dp_event.SampledWithoutReplacementDpEvent(200, 20, GAUSSIAN), 25),
            )
            for adjacency in ("add_remove", "replace_one", "zero_out")
        ),
        ("replace_one", "shuffled", dp_event.SelfComposedDpEvent(GAUSSIAN, 25)),
        ("zero_out", "shuffled", dp_event.SelfComposedDpEvent(GAUSSIAN, 25)),
        ("replace_one", "unknown", dp_event.SelfComposedDpEvent(GAUSSIAN, 25)),
        ("replace_one", None, dp_event.SelfComposedDpEvent(GAUSSIAN, 25)),
        *(("add_remove", item, None) for item in ("shuffled", "unknown", None)),
    ],
)
def test_events_by_sampler(adjacency: str, sampler: str | None, event: Any) -> None:
    """None is no bound: batches of a public number of records are others if there is one record more."""
    given = Stated(adjacency=Adjacency(adjacency), sampler=None if sampler is None else Sampler(sampler), records=200)
    reading = read_as(ONE, given)
    assert reading.event == (dp_event.NonPrivateDpEvent() if event is None else event)
    assert reading.exact is (sampler in ("poisson", "fixed") and event is not None)
    assert any("clipped each record" in item for item in reading.assumptions)
    public = any("its size does not depend on the number of records" in item for item in reading.assumptions)
    assert public is (adjacency == "add_remove" and sampler == "fixed")


def test_batches_of_a_fixed_size_where_a_record_is_added() -> None:
    """10 of 100 with σ = 1: the sum moves by 2 with probability 1/10, as one record takes the place of another."""
    state = State(library="x", what="x", parts=(SampledGaussian(1.0, 0.1, 1),))
    given = Stated(adjacency=Adjacency.ADD_REMOVE, sampler=Sampler.FIXED, records=100)
    bound = account(read_as(state, given).event, adjacency="add_remove", delta=1e-5)
    assert bound.interval is not None

    def removed(epsilon: float) -> float:  # E[(.1 φ(x − 2) + .9 φ(x) − e^ε φ(x))₊]
        threshold = 1 + math.log((math.exp(epsilon) - 0.9) / 0.1) / 2
        return float(0.1 * norm.sf(threshold - 2) + (0.9 - math.exp(epsilon)) * norm.sf(threshold))

    exact = brentq(lambda epsilon: removed(epsilon) - 1e-5, 1e-3, 20, xtol=1e-12)
    assert bound.interval.lower <= exact <= bound.value
    assert exact == pytest.approx(6.5755, abs=1e-4)


HALF = dp_event.GaussianDpEvent(0.5)


@pytest.mark.parametrize(
    ("stated", "event", "says"),
    [
        ((), dp_event.SelfComposedDpEvent(GAUSSIAN, 25), "each record counts in all 25 steps"),
        (("once",), dp_event.SelfComposedDpEvent(GAUSSIAN, 25), "each record counts in all 25 steps"),
        (
            ("epochs",),
            dp_event.ComposedDpEvent([HALF, GAUSSIAN]),
            "each record was at most 3 times in the 25 steps, and",
        ),
        (
            ("epochs", "once"),
            dp_event.SelfComposedDpEvent(GAUSSIAN, 3),
            "each record was in at most 3 of the 25 steps",
        ),
    ],
)
def test_shuffled_epochs_by_what_is_stated(stated: tuple[str, ...], event: Any, says: str) -> None:
    """25 steps at a rate of .1 are in three epochs; where it is not stated that a record is in a step at most once, two
    of its three places may be in one."""
    given = Stated(adjacency=Adjacency.ZERO_OUT, sampler=Sampler.SHUFFLED, conditions=frozenset(map(Condition, stated)))
    reading = read_as(ONE, given)
    assert events.counted([(reading.event, 1)]) == events.counted([(event, 1)])
    assert sum(says in item for item in reading.assumptions) == 1
    assert not {"epochs", *stated} & {item.name for item in reading.unstated}
    assert set(stated) <= reading.used


@pytest.mark.parametrize("seed", range(30))
def test_steps_that_gather_gradients_across_epochs(seed: int) -> None:
    """A step of a of an epoch's k batches: the largest sum of squares of one record's shares, by enumeration of its
    places, beside what is charged."""
    rng = random.Random(seed)
    k = rng.randint(2, 6)
    a = rng.randint(1, k - 1)
    steps = rng.randint(1, 7)
    state = State(library="x", what="x", parts=(SampledGaussian(1.0, a / k, steps),))
    given = Stated(adjacency=Adjacency.ZERO_OUT, sampler=Sampler.SHUFFLED, conditions=frozenset({Condition.EPOCHS}))
    charged = sum(
        count / event.noise_multiplier**2
        for event, count in events.counted([(read_as(state, given).event, 1)]).values()
    )
    epochs = -(-steps * a // k)
    worst = 0
    for indices in itertools.product(range(k), repeat=epochs):
        shares = [0] * steps
        for epoch, index in enumerate(indices):
            if (epoch * k + index) // a < steps:
                shares[(epoch * k + index) // a] += 1
        worst = max(worst, sum(share**2 for share in shares))
    assert worst <= charged


@pytest.mark.parametrize("stated", [None, "unknown"])
def test_that_samples_do_not_depend_on_values_is_left_open_where_nobody_says_how_they_were_drawn(
    stated: str | None,
) -> None:
    given = Stated(adjacency=Adjacency.ZERO_OUT, sampler=None if stated is None else Sampler(stated))
    reading = read_as(ONE, given)
    says = "Which records were in a step did not depend on their values; each may have been in all 25 steps."
    assert says in reading.assumptions
    assert (says in {item.sentence for item in reading.unstated if item.name == "sampler"}) is (stated is None)


def test_a_record_twice_in_a_step_of_opacus() -> None:
    """Six steps of three of ten batches: a step gathered the end of one epoch and the beginning of the next, and a
    gradient summed to 2. μ = 2, and 4 for an exchange; once a step it would be the square root of 2, and twice that."""
    state = State(library="x", what="x", parts=(SampledGaussian(1.0, 0.3, 6),))
    exact = {}
    for stated in ((), (Condition.ONCE,)):
        for adjacency in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE):
            said = frozenset({Condition.EPOCHS, *stated})
            reading = read_as(state, Stated(adjacency=adjacency, sampler=Sampler.SHUFFLED, conditions=said))
            exact[adjacency, stated] = account(reading.event, adjacency=adjacency, delta=1e-5).value
    assert exact[Adjacency.ZERO_OUT, ()] == pytest.approx(epsilon_from_gdp(2.0, 1e-5), rel=1e-3)
    assert exact[Adjacency.REPLACE_ONE, ()] == pytest.approx(epsilon_from_gdp(4.0, 1e-5), rel=1e-3)
    assert exact[Adjacency.ZERO_OUT, (Condition.ONCE,)] == pytest.approx(epsilon_from_gdp(2**0.5, 1e-5), rel=1e-3)
    assert exact[Adjacency.REPLACE_ONE, (Condition.ONCE,)] == pytest.approx(epsilon_from_gdp(8**0.5, 1e-5), rel=1e-3)


@pytest.mark.parametrize("sampler", ["poisson", "fixed", "unknown"])
def test_that_a_record_is_once_in_a_step_is_a_condition_of_every_sampler(sampler: str) -> None:
    given = Stated(adjacency=Adjacency.ZERO_OUT, sampler=Sampler(sampler), records=200)
    reading = read_as(ONE, given)
    assert "once" in {item.name for item in reading.unstated}
    assert any("in a step at most once" in item for item in reading.assumptions)
    stated = read_as(ONE, dataclasses.replace(given, conditions=frozenset({Condition.ONCE})))
    assert "once" not in {item.name for item in stated.unstated}
    assert any("in a step at most once" in item for item in stated.assumptions)


@pytest.mark.parametrize(
    ("adjacency", "normalizer", "bounded"),
    [
        ("add_remove", None, False),
        ("add_remove", "batch", False),
        ("add_remove", "unknown", False),
        ("add_remove", "public", True),
        ("zero_out", None, True),
        ("zero_out", "batch", True),
        ("replace_one", None, True),
    ],
)
def test_a_divisor_that_follows_the_data_has_no_bound_at_add_remove(
    adjacency: str, normalizer: str | None, bounded: bool
) -> None:
    """Of a library that divides by one unless somebody says otherwise; of another, only where somebody says so."""
    given = Stated(
        adjacency=Adjacency(adjacency),
        sampler=Sampler.POISSON,
        normalizer=None if normalizer is None else Normalizer(normalizer),
    )
    follows = dataclasses.replace(ONE, default_normalizer=Normalizer.UNKNOWN)
    reading = read_as(follows, given)
    assert (reading.event == dp_event.NonPrivateDpEvent()) is not bounded
    assert any("divisor of the noisy sum" in hint for hint in reading.hints) is not bounded
    assert not (reading.exact and reading.hints)
    other = read_as(ONE, given)
    assert (other.event == dp_event.NonPrivateDpEvent()) is (not bounded and normalizer is not None)
    left_open = adjacency == "add_remove" and normalizer is None
    assert ("normalizer" in {item.name for item in other.unstated}) is left_open


def test_steps_whose_other_records_do_not_depend_on_one_have_a_bound_at_add_remove() -> None:
    """All but the one record are where they were: each step is a Gaussian. Of a shuffled data set nobody can say so."""
    independent = frozenset({Condition.INDEPENDENT})
    given = Stated(adjacency=Adjacency.ADD_REMOVE, sampler=Sampler.UNKNOWN, conditions=independent)
    reading = read_as(ONE, given)
    assert (reading.event, reading.hints) == (dp_event.SelfComposedDpEvent(GAUSSIAN, 25), ())
    assert any("does not depend on whether a record is in the data" in item for item in reading.assumptions)
    shuffled = dataclasses.replace(given, sampler=Sampler.SHUFFLED)
    assert read_as(ONE, shuffled).hints
    with pytest.raises(ValueError, match="condition independent does not apply"):
        check_used(shuffled, read_as(ONE, shuffled).used)


def test_opacus_is_read_at_zero_out_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    """It divides by int(n · rate): 1000 and 999 records at a batch of 100 have 100 and 99."""
    state = read_state(opacus_file(tmp_path, "json"))
    reading = read_as(state, Stated(sampler=Sampler.POISSON))
    assert (reading.adjacency, reading.hints) == (Adjacency.ZERO_OUT, ())
    assert {"adjacency", "unit", "clipping", "noise", "once"} == {item.name for item in reading.unstated}
    assert int(1000 * 0.1) != int(999 * 0.1)


def test_one_record_more_in_shuffled_batches_moves_others() -> None:
    """Why add_remove has no bound then: records −1 and 1 in turns, batches of two, and one record more in front."""
    data = [-1, 1] * 8
    near = [-1, *data]

    def sums(records: list[int]) -> list[int]:
        return [sum(records[start : start + 2]) for start in range(0, 16, 2)]

    first, second = sums(data), sums(near)
    assert max(abs(a - b) for a, b in zip(first, second, strict=True)) == 2
    assert sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) == 4  # the first batch; the others agree
    data = [-1, -1, 1, 1] * 4
    first, second = sums(data), sums([-1, *data])
    assert sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) == 4 * 7  # here all but one move by 2


@pytest.mark.parametrize("seed", range(20))
def test_no_record_is_in_more_steps_of_shuffled_epochs_than_are_charged(seed: int) -> None:
    """Epochs that go on through the parts of a history, by enumeration of all places of a record."""
    rng = random.Random(seed)
    epoch = rng.randint(1, 12)
    counts = [rng.randint(1, 40) for _ in range(rng.randint(1, 3))]
    parts = tuple(SampledGaussian(1.0 + index, 1 / epoch, steps) for index, steps in enumerate(counts))
    said = frozenset({Condition.EPOCHS, Condition.ONCE})
    given = Stated(adjacency=Adjacency.ZERO_OUT, sampler=Sampler.SHUFFLED, conditions=said)
    charged = events.counted([(read_as(State(library="x", what="x", parts=parts), given).event, 1)])
    bounds = [charged[repr(dp_event.GaussianDpEvent(part.noise_multiplier))][1] for part in parts]
    starts = [sum(counts[:index]) for index in range(len(counts))]
    for start, steps, bound in zip(starts, counts, bounds, strict=True):
        touched = {step // epoch for step in range(start, start + steps)}
        most = len(touched)  # in each epoch that a part touches, the record may be in one of its steps
        assert most <= bound <= most + 1


EVENT = dp_event.ComposedDpEvent(
    [
        dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(1.5)), 30),
        dp_event.LaplaceDpEvent(2.0),
        dp_event.SampledWithoutReplacementDpEvent(100, 10, dp_event.GaussianDpEvent(2.0)),
    ]
)


def nested(value: Any) -> Any:
    """A named tuple as JSON with the names of its fields."""
    if hasattr(value, "_asdict"):
        return {key: nested(item) for key, item in value._asdict().items()}
    return [nested(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("form", ["named", "listed", "text"])
def test_events_of_dp_accounting(tmp_path: Path, form: str) -> None:
    tuples = EVENT.to_named_tuple()
    texts = {"named": json.dumps(nested(tuples)), "listed": json.dumps(tuples), "text": repr(EVENT)}
    (tmp_path / "event").write_text(texts[form])
    state = read_state(tmp_path / "event")
    assert state.library == "dp_accounting"
    assert state.parts == (RepeatedEvent(EVENT),)
    reading = read_as(state, Stated(adjacency=Adjacency.ADD_REMOVE))
    assert reading.exact
    assert reading.event == events.compose([(EVENT, 1)])
    exchange = read_as(state, Stated(adjacency=Adjacency.REPLACE_ONE))
    assert not exchange.exact, "what dp_accounting's noise multipliers refer to is then not recorded"
    assert any("records moves a sum by twice" in item for item in exchange.assumptions)


@pytest.mark.parametrize("form", ["named", "listed", "text"])
def test_random_allocation_of_dp_accounting(tmp_path: Path, form: str) -> None:
    """An event of its HEAD, which its release does not have."""
    inner = {"module_name": "dp_accounting.dp_event", "class_name": "GaussianDpEvent", "noise_multiplier": 2.0}
    fields = {"event": inner, "num_selected": 10, "num_steps": 100}
    name = ["dp_accounting.dp_event", "RandomAllocationDpEvent"]
    texts = {
        "named": json.dumps({"module_name": name[0], "class_name": name[1], **fields}),
        "listed": json.dumps([*name, list(inner.values()), 10, 100]),
        "text": "RandomAllocationDpEvent(event=GaussianDpEvent(noise_multiplier=2.0), num_selected=10, num_steps=100)",
    }
    (tmp_path / "event").write_text(texts[form])
    (part,) = read_state(tmp_path / "event").parts
    assert part == RepeatedEvent(events.RandomAllocationDpEvent(dp_event.GaussianDpEvent(2.0), 10, 100))


def test_a_truncated_sample_of_dp_accounting(tmp_path: Path) -> None:
    (tmp_path / "event").write_text(
        "TruncatedSubsampledGaussianDpEvent(dataset_size=1000, sampling_probability=0.01, truncated_batch_size=30, "
        "noise_multiplier=1.5)"
    )
    (part,) = read_state(tmp_path / "event").parts
    assert part == RepeatedEvent(events.TruncatedPoissonSampledDpEvent(0.01, 1000, 30, dp_event.GaussianDpEvent(1.5)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not valid JSON"),
        ('{"history": [[NaN, 0.1, 3]], "mechanism": "rdp"}', "holds NaN"),
        ("[" * 100_000, "nested too deep"),
        ("hello", "no ledger, claim, or file of a library"),
        ('{"history": [[1, 2]], "mechanism": "rdp"}', r"history\[0\] must be three numbers"),
        ('{"history": [[1, true, 2]], "mechanism": "rdp"}', r"history\[0\] must be three numbers"),
        ('{"history": [[1, 0.1, 2.5]], "mechanism": "rdp"}', "number of steps must be whole"),
        ('{"history": [[1, 1.5, 2]], "mechanism": "rdp"}', "sample_rate must be between 0 and 1"),
        ('{"history": [[1, 0.0, 2]], "mechanism": "rdp"}', "sample_rate must be"),
        ('{"history": [[1, 0.5, 1e999]], "mechanism": "rdp"}', r"history\[0\]"),
        ('{"history": [[1' + "0" * 400 + ', 0.5, 3]], "mechanism": "rdp"}', r"history\[0\]"),
        ('{"history": [[-1, 0.5, 2]], "mechanism": "rdp"}', "noise_multiplier"),
        ('{"history": [[1e999, 0.5, 2]], "mechanism": "rdp"}', "noise_multiplier"),
        ('{"history": {}, "mechanism": "rdp"}', "history must be a list"),
        ('{"history": [], "mechanism": "mine"}', "mechanism one of rdp, gdp, prv, dpassay"),
        ('{"history": [[1, 0.5, 900]], "mechanism": "rdp", "history": [[1, 0.5, 2]]}', "a key twice"),
        ("PK\x03\x04" + "x" * 99, "is a zip archive, but no checkpoint"),
        ("OtherDpEvent(x=1)", "dpassay does not support event"),
        ("GaussianDpEvent(noise_multiplier=open('x'))", "an expression that repr"),
        ("GaussianDpEvent(sigma=1.0)", "wrong fields"),
        ("GaussianDpEvent(" + "[" * 200 + "]" * 200 + ")", "too long or too deep"),
        ('{"module_name": "dp_accounting.x", "class_name": "EvilDpEvent"}', "dpassay does not support event"),
        ('["dp_accounting.dp_event", "GaussianDpEvent"]', "other fields"),
    ],
)
def test_wrong_files_are_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        read_as(read_state(tmp_path / "file"), Stated())
    assert "\n" not in str(error.value)
    assert str(tmp_path / "file") in str(error.value)


@pytest.mark.parametrize(
    "event",
    [
        dp_event.NoOpDpEvent(),
        dp_event.ComposedDpEvent([]),
        dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(GAUSSIAN, 0), dp_event.NoOpDpEvent()]),
    ],
)
def test_an_event_of_nothing_says_nothing(tmp_path: Path, event: Any) -> None:
    (tmp_path / "file").write_text(repr(event))
    with pytest.raises(ValueError, match="records no step and no release"):
        read_as(read_state(tmp_path / "file"), Stated())


def test_a_file_that_says_something_else_is_not_overruled() -> None:
    state = State(library="x", what="x", parts=ONE.parts, adjacency=Adjacency.ADD_REMOVE, sampler=Sampler.POISSON)
    with pytest.raises(ValueError, match="the file says sampler poisson, not shuffled"):
        read_as(state, Stated(sampler=Sampler.SHUFFLED))
    assert read_as(state, Stated(sampler=Sampler.POISSON)).sampler is Sampler.POISSON


SAMPLED = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, GAUSSIAN), 500)


@pytest.mark.parametrize("sampler", ["shuffled", "fixed", "unknown"])
def test_a_sampler_that_contradicts_an_event_is_refused(sampler: str) -> None:
    state = State(library="x", what="x", parts=(RepeatedEvent(SAMPLED),))
    with pytest.raises(ValueError, match=f"the file says sampler poisson, not {sampler}"):
        read_as(state, Stated(sampler=Sampler(sampler)))
    said = read_as(state, Stated(sampler=Sampler.POISSON))
    check_used(Stated(sampler=Sampler.POISSON), said.used)
    assert "Every record was in each step's batch independently, with the recorded rate, in secret." in said.assumptions
    with pytest.raises(ValueError, match="the file says sampler fixed and poisson, not poisson"):
        read_as(State(library="x", what="x", parts=(RepeatedEvent(EVENT),)), Stated(sampler=Sampler.POISSON))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Stated(sampler=Sampler.POISSON), "sampler poisson does not apply"),
        (Stated(records=10), "records 10 does not apply"),
        (Stated(normalizer=Normalizer.PUBLIC), "normalizer public does not apply"),
        (Stated(conditions=frozenset({Condition.EPOCHS})), "condition epochs does not apply"),
    ],
)
def test_what_says_nothing_about_a_file_is_refused(given: Stated, message: str) -> None:
    state = State(library="x", what="x", parts=(RepeatedEvent(GAUSSIAN),))
    with pytest.raises(ValueError, match=message):
        check_used(given, read_as(state, given).used)
    full = State(library="x", what="x", parts=(SampledGaussian(1.0, 1.0, 3),))
    if given.normalizer is None:
        with pytest.raises(ValueError, match=message):
            check_used(given, read_as(full, given).used)


@pytest.mark.parametrize("records", [None, 33])
def test_fixed_batches_need_a_number_of_records_that_fits(records: int | None) -> None:
    with pytest.raises(ValueError, match="--records"):
        read_as(ONE, Stated(adjacency=Adjacency.REPLACE_ONE, sampler=Sampler.FIXED, records=records))


SAMPLERS = [Stated(sampler=sampler, adjacency=Adjacency.REPLACE_ONE, records=1000) for sampler in Sampler]


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_are_read_or_refused_in_one_line(tmp_path: Path, seed: int) -> None:
    """4 times 600 mutations of JSON and of text, under every sampler."""
    rng = random.Random(seed)
    bases = [
        json.dumps({"history": HISTORY, "mechanism": "rdp"}),
        json.dumps(EVENT.to_named_tuple()),
        json.dumps(nested(EVENT.to_named_tuple())),
        repr(EVENT),
    ]
    pieces = [
        "0",
        "-1",
        "1e999",
        "1" * 400,
        "null",
        "true",
        "[",
        "]",
        "{",
        "}",
        '"',
        ",",
        "(",
        ")",
        "é",
        "\0",
        "DpEvent(",
    ]
    read = refused = 0
    for _ in range(600):
        text = bases[rng.randrange(len(bases))]
        for _ in range(rng.randint(1, 3)):
            start = rng.randrange(len(text) + 1)
            text = text[:start] + rng.choice(pieces) + text[start + rng.choice((0, 1, 1, 2, 5)) :]
        (tmp_path / "file").write_text(text, encoding="utf-8")
        try:
            state = read_state(tmp_path / "file")
            for given in SAMPLERS:
                read_as(state, given)
            read += 1
        except ValueError as error:
            refused += "\n" not in str(error)
    assert read + refused == 600
    assert refused > 200
