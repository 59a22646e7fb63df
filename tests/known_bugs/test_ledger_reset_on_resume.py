"""A run that is killed begins anew with an empty ledger, draws noise once more, and has forgotten what it released."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import dp_event
from exhibits import Exhibit, Floats, at_least, claimed, on_the_page, told_apart, verdict

from dpassay.accounting import PureDP, accountant
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.ledger.entries import Charge, Commit
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.audits.games.replay.released_values import ReleasedValue, released_findings
from dpassay.mechanisms.primitives import counts as noise

CLAIM = PureDP(1.0)
STEPS, KILLS = 4, 5
EVENT = noise.count_event(CLAIM.epsilon / STEPS, Adjacency.ADD_REMOVE)
PLAN = dp_event.SelfComposedDpEvent(EVENT, STEPS)


def counts(folder: Path, size: int, *, bug: bool, stop: int | None) -> None:
    """Releases four noisy counts of `size` records into a file; killed once `stop` of them are out."""
    path = folder / "ledger.sqlite"
    if bug:
        for old in folder.glob("ledger.sqlite*"):
            old.unlink()
    with Ledger.open(path) as ledger, (folder / "released.jsonl").open("a") as file:
        run = ledger.begin("run", plan=PLAN, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={})
        for step in range(STEPS):
            key = f"counts/{step}"
            outcome = run.outcome(key)
            if outcome is None:
                run.step(charge=Charge(key=key, event=EVENT, stage="counts"))
                drawn = noise.noisy_counts([size], epsilon=CLAIM.epsilon / STEPS, adjacency=Adjacency.ADD_REMOVE)
                run.step(commit=Commit(key=key, value=drawn.tolist()))
                outcome = run.outcome(key)
            assert outcome is not None
            file.write(json.dumps({"key": key, "value": outcome.value}) + "\n")
            file.flush()
            if step + 1 == stop:
                os.kill(os.getpid(), signal.SIGKILL)
        run.finish()


def killed_and_resumed(folder: Path, *, bug: bool) -> list[ReleasedValue]:
    """All that was seen outside: five processes are killed after three counts, and the sixth comes to its end."""
    folder.mkdir()
    noise.noisy_counts([0], epsilon=1.0, adjacency=Adjacency.ADD_REMOVE)  # loads its library once, before the forks
    for stop in [STEPS - 1] * KILLS + [None]:
        child = multiprocessing.get_context("fork").Process(
            target=counts, args=(folder, 100), kwargs={"bug": bug, "stop": stop}
        )
        child.start()
        child.join()
        assert child.exitcode == (0 if stop is None else -signal.SIGKILL)
    return [ReleasedValue(**json.loads(line)) for line in (folder / "released.jsonl").read_text().splitlines()]


def test_what_was_released_is_not_what_was_charged(tmp_path: Path) -> None:
    """3·5 + 4 values were seen. In the ledger of the last process there are four; each of the 15 before agrees with its
    own by chance with probability at most tanh(1/8), so that with less than 10⁻¹³ all do. Both ledgers verify, are
    finished and were charged their plan: nothing in the file itself tells them apart."""
    for bug in (True, False):
        seen = killed_and_resumed(tmp_path / str(bug), bug=bug)
        assert len(seen) == 3 * KILLS + STEPS
        with Ledger.open(tmp_path / str(bug) / "ledger.sqlite", read_only=True) as ledger:
            ledger.verify()
            assert ledger.event() == PLAN
            assert accountant("basic", "add_remove").compose(ledger.event()).epsilon(0.0).value == pytest.approx(1.0)
            result = released_findings(ledger.run("run"), seen)
        assert {finding.measured for finding in result} == ({"another value, drawn again"} if bug else set())
        assert {number.step for number in result} <= set(range(3 * KILLS))


def seen_in_all(*, bug: bool) -> functools.partial[Floats]:
    return functools.partial(_log_ratios, draws=[1 + KILLS] * (STEPS - 1) + [1] if bug else [1] * STEPS)


def _log_ratios(size: int, runs: int, rng: np.random.Generator, *, draws: list[int]) -> Floats:
    """The log-likelihood ratio of 101 to 100, of all draws of noise of all counts, for each of some runs."""
    p = -np.expm1(-1 / noise.count_scale(CLAIM.epsilon / STEPS, Adjacency.ADD_REMOVE))
    drawn = rng.geometric(p, (runs, sum(draws))) - rng.geometric(p, (runs, sum(draws)))
    return np.asarray(np.sum(np.abs(size + drawn - 100) - np.abs(size + drawn - 101), axis=1) * CLAIM.epsilon / STEPS)


@functools.cache
def sampled() -> tuple[Bound, ...]:
    """What all processes draw, without killing any: three of the counts once a process, and the last one once."""
    return tuple(told_apart(seen_in_all(bug=bug), 100, 101, CLAIM, runs=40_000, score=float) for bug in (True, False))


def test_the_two_data_sets_are_told_apart() -> None:
    """19 counts at ¼ are 4.75-DP, and no run shows more."""
    wrong, right = sampled()
    assert verdict(CLAIM, wrong) == "REFUTED"
    assert wrong.value <= 4.75
    assert verdict(CLAIM, right) == "UNPROVEN"


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "a resumed run that resets its ledger, killed five times",
        "no single source: jobs that are restarted with an empty folder for their state",
        "released values against the ledger; distinguishing",
        claimed(CLAIM),
        f"{at_least(sampled()[0])}, where 4.75 was spent",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
