"""Leave-one-out losses against brute force: the law with and without each record, in 50-digit arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import mpmath
import numpy as np
import pytest

from dpassay.accounting.ex_post import costs
from dpassay.accounting.ex_post.clipped_rows import clip_logits
from dpassay.accounting.ex_post.medians import Medians
from dpassay.attacks.private_inference.leave_one_out import LeaveOneOut, mixture_losses
from dpassay.mechanisms.private_inference import aggregation

CLIP, TEMPERATURE, VOCABULARY = 6.0, 1.5, 7
mpmath.mp.dps = 50


def log_softmax(logits: Sequence[mpmath.mpf], token: int) -> mpmath.mpf:
    scaled = [z / mpmath.mpf(TEMPERATURE) for z in logits]
    return scaled[token] - mpmath.log(mpmath.fsum(mpmath.exp(z) for z in scaled))


def aggregate(rows: np.ndarray, kind: str, denominator: int) -> list[mpmath.mpf]:
    if kind == "mean":
        return [mpmath.fsum(map(mpmath.mpf, column)) / denominator for column in rows.T]
    if not len(rows):
        return [mpmath.mpf(CLIP)] * VOCABULARY
    ordered = np.sort(rows, axis=0)
    half = len(rows) // 2
    middle = ordered[[half]] if len(rows) % 2 else ordered[half - 1 : half + 1]
    return [mpmath.fsum(map(mpmath.mpf, column)) / len(middle) for column in middle.T]


def run(kind: str, sizes: Sequence[int], tokens: int, denominator: int = 4) -> tuple[LeaveOneOut, list[mpmath.mpf]]:
    """A made-up run over slots of these sizes; returns the attack and the exact loss of each record."""
    rng = np.random.default_rng(len(sizes) + tokens)
    attack = LeaveOneOut(sum(sizes), aggregate=kind, clip=CLIP, temperature=TEMPERATURE, denominator=denominator)
    exact = [mpmath.mpf(0)] * sum(sizes)
    start = 0
    for slot, size in enumerate(sizes):
        records = list(range(start, start + size))
        start += size
        for position in range(tokens):
            clipped = clip_logits(rng.normal(scale=3, size=(size, VOCABULARY)), CLIP)
            clipped = clipped.reshape(size, VOCABULARY)
            medians = Medians.of(clipped, clip=CLIP) if kind == "median" else None
            token = int(rng.integers(VOCABULARY))
            attack.step(
                slot=slot,
                records=records,
                clipped=clipped,
                medians=medians,
                log_probability=0.0,
                token=token,
                document=0,
                position=position,
            )
            base = log_softmax(aggregate(clipped, kind, denominator), token)
            for row, record in enumerate(records):
                without = aggregate(np.delete(clipped, row, axis=0), kind, denominator)
                exact[record] += base - log_softmax(without, token)
    return attack, exact


@pytest.mark.parametrize("kind", ["median", "mean"])
def test_losses_and_their_error_bounds(kind: str) -> None:
    attack, exact = run(kind, sizes=[1, 2, 3, 4, 5], tokens=6)
    gaps = np.array([abs(float(mpmath.mpf(loss) - truth)) for loss, truth in zip(attack.losses, exact, strict=True)])
    assert (gaps <= attack.errors).all()
    assert (attack.errors < 1e-12).all()
    assert np.abs(attack.losses).max() > 0.1


def test_by_slot_takes_the_largest_in_absolute_value() -> None:
    attack, exact = run("mean", sizes=[3, 4], tokens=5)
    expected = [max(abs(float(x)) for x in exact[:3]), max(abs(float(x)) for x in exact[3:])]
    assert list(attack.by_slot()) == [0, 1]
    np.testing.assert_allclose(list(attack.by_slot().values()), expected, atol=1e-12)
    assert set(attack.errors_by_slot()) == {0, 1}


def test_an_empty_slot_loses_nothing() -> None:
    attack, _ = run("median", sizes=[0, 2], tokens=3)
    assert attack.by_slot()[0] == 0.0


def test_a_loss_is_at_most_the_ex_post_cost() -> None:
    """Over a whole transcript, |loss| ≤ ε* = max(Σ u⁻, Σ u⁺) for every record and batch size."""
    rng = np.random.default_rng(5)
    for size in (1, 2, 3, 8, 9):
        attack = LeaveOneOut(size, aggregate="median", clip=CLIP, temperature=TEMPERATURE)
        minus, plus = [], []
        for position in range(20):
            shared = rng.normal(scale=3, size=VOCABULARY)
            clipped = clip_logits(shared + rng.normal(size=(size, VOCABULARY)), CLIP)
            medians = Medians.of(clipped, clip=CLIP)
            token = int(rng.integers(VOCABULARY))
            attack.step(
                slot=0,
                records=range(size),
                clipped=clipped,
                medians=medians,
                log_probability=medians.log_probability(token, TEMPERATURE),
                token=token,
                document=0,
                position=position,
            )
            cost = medians.costs(token, TEMPERATURE)
            minus.append(cost.u_minus)
            plus.append(cost.u_plus)
        assert attack.by_slot()[0] <= max(costs.upward_sum(minus), costs.upward_sum(plus))


def test_an_unprotected_document_is_a_mixture_over_its_slot() -> None:
    rng = np.random.default_rng(3)
    size, documents = 4, 3
    attack = LeaveOneOut(size, aggregate="none", clip=CLIP, temperature=TEMPERATURE)
    exact = [mpmath.mpf(0)] * size
    for document in range(documents):
        laws = [mpmath.mpf(0)] * size
        for position in range(5):
            logits = rng.normal(scale=4, size=(size, VOCABULARY))
            token = int(rng.integers(VOCABULARY))
            attack.step(
                slot=0,
                records=range(size),
                clipped=logits,
                medians=None,
                log_probability=0.0,
                token=token,
                document=document,
                position=position,
            )
            laws = [law + log_softmax(list(map(mpmath.mpf, row)), token) for law, row in zip(laws, logits, strict=True)]
        chances = [mpmath.exp(law) for law in laws]
        whole = mpmath.fsum(chances) / size
        for row in range(size):
            rest = mpmath.fsum(chance for j, chance in enumerate(chances) if j != row) / (size - 1)
            exact[row] += mpmath.log(whole / rest)
    gaps = np.array([abs(float(mpmath.mpf(loss) - truth)) for loss, truth in zip(attack.losses, exact, strict=True)])
    assert (gaps <= attack.errors).all()
    assert (attack.errors < 1e-11).all()


def test_a_verbatim_copy_has_a_large_loss() -> None:
    """The record that alone explains a document: log(1/B) against what the others give it."""
    losses, errors = mixture_losses(np.array([0.0, -30.0, -30.0]), np.zeros(3))
    assert losses[0] == pytest.approx(30 - np.log(3), abs=1e-9)
    assert losses[1] == pytest.approx(np.log(2 / 3), abs=1e-9)
    assert (errors < 1e-12).all()


def test_the_last_record_of_a_slot_is_left_to_the_rerun() -> None:
    losses, errors = mixture_losses(np.array([-1.0]), np.array([1e-9]))
    assert (losses.tolist(), errors.tolist()) == ([0.0], [0.0])


def test_an_uncertain_row_matters_as_much_as_it_explains() -> None:
    """A row whose law is hardly known makes the losses uncertain only where it carries weight."""
    unknown = np.array([0.0, 0.0, 3.0])
    _, likely = mixture_losses(np.array([-1.0, -1.0, -1.0]), unknown)
    losses, unlikely = mixture_losses(np.array([-1.0, -1.0, -40.0]), unknown)
    assert (likely > 0.5).all()
    assert (unlikely < 1e-12).all()
    assert losses[2] == pytest.approx(np.log(2 / 3), abs=1e-12)


def test_losses_are_those_of_the_law_that_is_sampled() -> None:
    """A mean over more rows than its denominator, and a softmax without clip, are cut off far below their peak."""
    rng = np.random.default_rng(8)
    clipped = clip_logits(rng.choice([-9.0, 9.0], size=(6, VOCABULARY)), CLIP)
    attack = LeaveOneOut(6, aggregate="mean", clip=CLIP, temperature=TEMPERATURE, denominator=2)
    for token in range(VOCABULARY):
        arguments = {"slot": 0, "records": range(6), "medians": None, "log_probability": 0.0, "document": 0}
        attack.step(clipped=clipped, token=token, position=token, **arguments)  # type: ignore[arg-type]
    laws = {"clip": CLIP, "temperature": TEMPERATURE, "denominator": 2}
    whole = aggregation.mean(clipped, None, **laws)  # type: ignore[arg-type]
    for row in range(6):
        rest = aggregation.mean(np.delete(clipped, row, axis=0), None, **laws)  # type: ignore[arg-type]
        expected = sum(whole.log_probability(t) - rest.log_probability(t) for t in range(VOCABULARY))
        assert attack.losses[row] == pytest.approx(expected, abs=1e-11)
    assert np.ptp(whole.scores) > 2 * whole.clip

    logits = np.zeros((2, VOCABULARY))
    logits[0, 0] = 500.0
    unprotected = LeaveOneOut(2, aggregate="none", clip=CLIP, temperature=TEMPERATURE)
    unprotected.step(
        slot=0,
        records=range(2),
        clipped=logits,
        medians=None,
        log_probability=0.0,
        token=1,
        document=0,
        position=0,
    )
    floor = aggregation.single(logits, logits[0], temperature=TEMPERATURE).log_probability(1)
    assert floor == pytest.approx(-40, abs=1e-9)
    expected = np.log((np.exp(floor) + 1 / VOCABULARY) / 2) - floor
    # The weight of such a token is 19 or 20, so its law is known to within a tenth.
    assert unprotected.losses[1] == pytest.approx(expected, abs=0.2)
    assert 0.05 < unprotected.errors[1] < 0.2


def test_the_rounding_of_the_sampled_law_is_counted() -> None:
    plain, _ = run("mean", sizes=[3], tokens=4)
    attack = LeaveOneOut(1, aggregate="mean", clip=CLIP, temperature=TEMPERATURE, denominator=1, rounding=1e-6)
    attack.step(
        slot=0,
        records=[0],
        clipped=np.zeros((1, VOCABULARY)),
        medians=None,
        log_probability=0.0,
        token=0,
        document=0,
        position=0,
    )
    assert attack.errors[0] >= 2e-6 > plain.errors.max()


def test_records_of_a_slot_must_not_move() -> None:
    attack = LeaveOneOut(2, aggregate="mean", clip=CLIP, temperature=TEMPERATURE, denominator=2)
    step = {"slot": 0, "medians": None, "log_probability": 0.0, "token": 0, "document": 0, "position": 0}
    attack.step(records=[0, 1], clipped=np.zeros((2, 3)), **step)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="same order"):
        attack.step(records=[1, 0], clipped=np.zeros((2, 3)), **step)  # type: ignore[arg-type]


def test_a_mean_needs_its_denominator() -> None:
    with pytest.raises(ValueError, match="denominator"):
        LeaveOneOut(2, aggregate="mean", clip=CLIP, temperature=TEMPERATURE)
