"""Small data sets, all of their neighbours, and what a run of private inference costs, by hand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

from dp_accounting import DpEvent, dp_event

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.events import ParallelDpEvent
from dpassay.accounting.ledger.run import Run
from dpassay.base.arrays import Floats
from dpassay.data.records import Record
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.score import score
from dpassay.mechanisms.private_inference.slot_inputs import SlotInputs
from dpassay.mechanisms.private_inference.transcripts import Generation, Transcript

KEY = bytes(range(16))
FLOAT = 1e-9
"""Sums of at most 12 log-probabilities below 20, and of costs whose own float error is added to them."""


def data_set(seed: int, size: int, *, users: bool = False) -> list[Record]:
    generator = random.Random(seed)
    texts = ["".join(generator.choice("12") for _ in range(3)) for _ in range(size)]
    return [Record(f"{seed}-{i}", text, None, f"u{i // 2}" if users else None) for i, text in enumerate(texts)]


def random_records(seed: int, *, labels: Sequence[str] = (), users: bool = False) -> list[Record]:
    """None to seven records."""
    draw = random.Random(seed)
    return [
        Record(
            f"{seed}-{i}",
            "".join(draw.choice("12") for _ in range(draw.randint(1, 3))),
            draw.choice(labels) if labels else None,
            f"u{draw.randrange(4)}" if users else None,
        )
        for i in range(draw.randrange(8))
    ]


def candidates(seed: int) -> list[Record]:
    """Records that a neighbour may have in addition."""
    return [Record(f"new-{seed}-{i}", text, None, "new") for i, text in enumerate(("1", "22", "212"))]


def added_or_removed(records: list[Record], seed: int) -> Iterator[list[Record]]:
    yield from (records[:i] + records[i + 1 :] for i in range(len(records)))
    yield from ([*records, extra] for extra in candidates(seed))


def replaced(records: list[Record], seed: int) -> Iterator[list[Record]]:
    for i, extra in itertools.product(range(len(records)), candidates(seed)):
        yield [*records[:i], extra, *records[i + 1 :]]


def users_added_or_removed(records: list[Record], seed: int) -> Iterator[list[Record]]:
    for user in {record.user for record in records}:
        yield [record for record in records if record.user != user]
    yield [*records, *candidates(seed)]


NEIGHBOURS = {"add_remove": added_or_removed, "replace_one": replaced, "user": users_added_or_removed}


def scores_of_slots(
    mechanism: PrivateInference,
    records: Sequence[Record],
    model: Any,
    transcript: Transcript,
    *,
    key: bytes,
    slots: Sequence[int] | None = None,
) -> Floats:
    """Σ log p(token) over each slot's tokens in a transcript, under given records; all slots by default.

    A slot that did not run scores 0.
    """
    chosen = range(mechanism.total_slots) if slots is None else slots
    inputs = SlotInputs(mechanism, records, model, key, transcript.cluster_counts)
    return score([(inputs, slot) for slot in chosen], transcript)


def log_ratio(
    chosen: PrivateInference, model: Any, records: Sequence[Record], other: Sequence[Record], transcript: Transcript
) -> float:
    """log P_D(x)/P_D′(x) of all tokens."""
    scores = [scores_of_slots(chosen, data, model, transcript, key=KEY) for data in (records, other)]
    return float((scores[0] - scores[1]).sum())


def realised_epsilons(chosen: PrivateInference, run: Run) -> tuple[float, float]:
    """The realised ex-post bounds on log P_D/P_D′ and log P_D′/P_D: the worst part, or under replace_one the two worst
    with their signs matched."""
    costs = list(run.realised().values())
    minus, plus = sorted((c.u_minus for c in costs), reverse=True), sorted((c.u_plus for c in costs), reverse=True)
    parts = 2 if chosen.adjacency is Adjacency.REPLACE_ONE else 1
    return sum(minus[:parts]), sum(plus[:parts])


def written(
    chosen: PrivateInference, model: Any, records: Sequence[Record], runs: Any, seed: int
) -> tuple[Generation, float, float]:
    """A run, with its realised bounds on log P_D/P_D′ and log P_D′/P_D."""
    run = runs.begin(chosen, noise="recorded")
    generation = generate(chosen, records, model, run, key=KEY, source=Recorded(seed))
    run.finish()
    return generation, *realised_epsilons(chosen, run)


def pure_epsilon(event: DpEvent, adjacency: Adjacency) -> float:
    """Basic composition of bounded-range selections, by hand: each is range-DP; parallel parts as in `events`."""
    match event:
        case dp_event.SelfComposedDpEvent():
            return int(event.count) * pure_epsilon(event.event, adjacency)
        case dp_event.ComposedDpEvent():
            return sum(pure_epsilon(part, adjacency) for part in event.events)
        case dp_event.DiscreteLaplaceDpEvent():
            return float(event.noise_parameter * event.sensitivity * (2 if adjacency is Adjacency.REPLACE_ONE else 1))
        case ParallelDpEvent():
            worst = sorted((pure_epsilon(part, adjacency) for part in event.events), reverse=True)
            return sum(worst[: 2 if adjacency is Adjacency.REPLACE_ONE else 1])
        case _:
            return float(event.range)
