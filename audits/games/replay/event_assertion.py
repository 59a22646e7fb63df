"""One call for a test-suite: a mechanism keeps to its events on these neighbours, or the test fails."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from dp_accounting import DpEvent

from cupel.accounting.adjacency import Adjacency
from cupel.attacks.black_box.recorder import Data, Mechanism
from cupel.audits.games.replay.record_replay import FALSE_ALARM, TOLERANCE, record_replay_findings


def assert_events_hold(
    mechanism: Mechanism[Data],
    data: Data,
    neighbors: Iterable[Data],
    *,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    plan: DpEvent | None = None,
    recordings: int = 2,
    tolerance: float = TOLERANCE,
    false_alarm: float = FALSE_ALARM,
    seed: int | None = 0,
) -> None:
    """Records a mechanism, replays it on neighbours, and fails if an event does not hold.

    Passing is no proof: other neighbours and other histories were not tried (`record_replay_findings`).

    Args:
        mechanism: called as ``mechanism(data, recorder)``; it gives the recorder each query with the event that it
            charges (`cupel.attacks.black_box.recorder.Recorder`).
        data: a small data set.
        neighbors: of the data; `cupel.attacks.black_box.neighbors.neighbors` lists all.
        adjacency: add_remove, replace_one or zero_out.
        plan: what the run is accounted as, or what its ledger was charged; None does not compare.
        recordings: runs on the data, at least 2. More of them make the tests of samples and noise sharper.
        tolerance: an excess below this share of what is declared is none; for sums in single precision, 1e-4 or so.
        false_alarm: the probability of a failure by chance, over all tests of samples and noise.
        seed: of what the recorder draws, so that the test does the same each time; None asks the operating system.

    Raises:
        AssertionError: naming each event that does not hold, what was declared and what was found.
        ValueError: where there is no neighbour, or an adjacency without a rule.
    """
    others = list(neighbors)
    if not others:
        raise ValueError("there must be at least one neighbour to replay on")
    found = record_replay_findings(
        mechanism,
        data,
        others,
        adjacency=adjacency,
        plan=plan,
        recordings=recordings,
        tolerance=tolerance,
        false_alarm=false_alarm,
        rng=np.random.default_rng(seed),
    )
    if found:
        name = getattr(mechanism, "__name__", type(mechanism).__name__)
        lines = [f"{name} does not do what it declares ({Adjacency(adjacency)}):", *map(str, found)]
        raise AssertionError("\n- ".join(lines))
