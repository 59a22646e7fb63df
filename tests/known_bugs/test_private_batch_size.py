"""A noisy sum over a batch size that is computed from the number of records: the noise has a scale that tells it."""

from __future__ import annotations

import functools
import math
import warnings

import numpy as np
import pytest
from dp_accounting import dp_event
from exhibits import Exhibit, Floats, at_least, claimed, on_the_page, told_apart, verdict
from numpy.typing import NDArray
from published_rows import lower
from scipy import stats

from dpassay.accounting import ApproxDP
from dpassay.accounting.bounds import Bound
from dpassay.attacks.black_box.recorder import Mechanism, Recorder
from dpassay.audits.games.replay.record_replay import record_replay_findings
from dpassay.base.number_format import format_lower

CLAIM = ApproxDP(0.8, 1e-5)  # what is certified for 10 steps where the divisor is public: at most 0.798472
RECORDS, BATCH, NOISE, STEPS, PARAMETERS = 1000, 100, 2.0, 10, 500_000


def divisor(records: int, batch: int, *, bug: bool) -> int:
    """int(n · rate), the rate being one over the number of batches; or the loader's batch size."""
    return int(records * (1 / math.ceil(records / batch))) if bug else batch


def steps(*, bug: bool) -> Mechanism[list[float]]:
    """Two steps over batches of 10, with a gradient of 40 parameters to which each record adds what it holds."""

    def run(data: list[float], recorder: Recorder) -> list[NDArray[np.float64]]:
        over, event = divisor(len(data), 10, bug=bug), dp_event.GaussianDpEvent(NOISE)
        return [recorder.gaussian(np.full(40, sum(data) / over), event, scale=1 / over) for _ in range(2)]

    return run


def test_record_and_replay_finds_noise_of_another_scale() -> None:
    data = [0.0] * 100
    plan = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(NOISE), 2)
    result = record_replay_findings(steps(bug=True), data, [data[1:]], adjacency="add_remove", plan=plan)
    assert {finding.kind for finding in result} == {"scale"}
    assert not record_replay_findings(steps(bug=False), data, [data[1:]], adjacency="add_remove", plan=plan)


def norms(records: int, runs: int, rng: np.random.Generator, *, bug: bool) -> Floats:
    """Squared norms of the steps of an epoch, all gradients being 0, shape (runs,): one chi-square number each."""
    scale = NOISE / divisor(records, BATCH, bug=bug)
    return np.asarray(scale**2 * rng.chisquare(PARAMETERS * STEPS, size=runs))


@functools.cache
def sampled() -> tuple[Bound, ...]:
    return tuple(
        told_apart(functools.partial(norms, bug=bug), RECORDS, RECORDS - 1, CLAIM, score=float) for bug in (True, False)
    )


def test_the_two_data_sets_are_told_apart() -> None:
    wrong, right = sampled()
    assert verdict(CLAIM, wrong) == "REFUTED"
    assert verdict(CLAIM, right) == "UNPROVEN"


@pytest.mark.slow
def test_opacus_is_told_apart() -> None:
    """One step of 640000 parameters, 60 runs a side, without per-sample gradients in memory.

    The norm has a relative standard deviation of 1/√(2·640000), and the threshold in the middle is 5.68 of them away
    from both: one of 120 runs is on the wrong side with probability 1e-6. Of a step that is (2.7, 1e-5)-private, a
    lower bound this high has probability at most .05.
    """
    torch, opacus = pytest.importorskip("torch"), pytest.importorskip("opacus")
    from opacus.utils.batch_memory_manager import DataLoader

    side = 800

    def norm_of_a_step(records: int) -> float:
        model = torch.nn.Linear(side, side, bias=False)
        data = torch.utils.data.TensorDataset(torch.zeros(records, side), torch.zeros(records, dtype=torch.long))
        model, optimizer, criterion, loader = opacus.PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(data, batch_size=BATCH),
            criterion=torch.nn.CrossEntropyLoss(),
            noise_multiplier=NOISE,
            max_grad_norm=1.0,
            grad_sample_mode="ghost",
        )
        assert optimizer.expected_batch_size == divisor(records, BATCH, bug=True)
        inputs, labels = next(iter(loader))
        optimizer.zero_grad()
        criterion(model(inputs), labels).backward()
        optimizer.step()
        (weight,) = model.parameters()
        return float(weight.grad.norm())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Opacus: noise that is no secure randomness
        whole, less = (np.array([norm_of_a_step(n) for _ in range(60)]) for n in (RECORDS, RECORDS - 1))
    threshold = NOISE * side * (1 / 100 + 1 / 99) / 2
    hits, false_hits = int((less > threshold).sum()), int((whole > threshold).sum())
    least = stats.beta.ppf(0.025, hits, 60 - hits + 1)
    most = stats.beta.ppf(0.975, false_hits + 1, 60 - false_hits)
    assert (hits, false_hits) == (60, 0)
    assert math.log((least - 1e-5) / most) > 2.7
    assert math.log((least - 1e-5) / most) == pytest.approx(2.758, abs=1e-3)


def test_what_an_epoch_of_opacus_is_worth() -> None:
    assert lower("lib-opacus-divisor") > 500
    assert sampled()[0].value < lower("lib-opacus-divisor")


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "a noisy sum divided by a batch size that is computed from the private number of records: 1000 or 999, batches "
        "of 100, 10 steps of 500000 parameters",
        "Opacus 1.6.0, `PrivacyEngine.make_private`, where add_remove is meant; at zero_out the number holds",
        "record and replay; distinguishing; 60 runs of Opacus a side; exact laws of the pair",
        claimed(CLAIM),
        f"{at_least(sampled()[0])}, all that so many runs can show; {format_lower(lower('lib-opacus-divisor'))}",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
