"""An assertion for test suites: the declared events of a mechanism hold on given neighbours."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from dp_accounting import DpEvent

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box.recorder import Data, Mechanism
from dpassay.audits.games.replay.record_replay import FALSE_ALARM, TOLERANCE, record_replay_findings


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

    Passing is no proof: other neighbours and other histories were not tested (`record_replay_findings`).

    Args:
        mechanism: called as ``mechanism(data, recorder)``. It passes each query to the recorder, with the event that
            it charges (`dpassay.attacks.black_box.recorder.Recorder`).
        data: a small data set.
        neighbors: of the data; `dpassay.attacks.black_box.enumerated_neighbors.neighbors` lists all.
        adjacency: add_remove, replace_one or zero_out.
        plan: the event that the run is accounted as, or that its ledger was charged; None skips this comparison.
        recordings: number of runs on the data, at least 2. More runs give the tests of samples and noise more power.
        tolerance: relative excess over a declared value that is ignored; for sums in single precision, about 1e-4.
        false_alarm: the probability of a failure by chance, over all tests of samples and noise.
        seed: of the recorder's random numbers, which makes the test reproducible; None uses the operating system's.

    Raises:
        AssertionError: names each event that does not hold, the declared value and what was found.
        ValueError: if there is no neighbour, or no rule for the adjacency.
    """
    others = list(neighbors)
    if not others:
        raise ValueError("neighbors must have at least one neighbour to replay on")
    result = record_replay_findings(
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
    if result:
        name = getattr(mechanism, "__name__", type(mechanism).__name__)
        lines = [f"{name} does not do what it declares ({Adjacency(adjacency)}):", *map(str, result)]
        raise AssertionError("\n- ".join(lines))
