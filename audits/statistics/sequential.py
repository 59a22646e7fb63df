"""An anytime-valid lower bound on ε, which may be read after every round: testing by betting.

Before each round an event is fixed; then the mechanism is run once on D and once on D′. A gambler, who is to show that
(ε, δ)-DP does not hold, bets on whether the event happens on either, by estimates of both rates from earlier runs
(`dpassay.audits.statistics.two_sample`). If (ε, δ)-DP holds, no bet gains on average, so the wealth, 1 at first, ever
reaches 1/β with probability at most β (Ville). Once it does, ε is rejected.

There is one such wealth for every ε of a grid. The bound is the largest ε such that *every* ε of the grid up to it has
been rejected at some time. If a mechanism is (ε*, δ)-DP, a bound above ε* requires that the first ε ≥ ε* of the grid
was rejected, which happens with probability at most β.

*Ceiling.* No rounds show more than those in which every event happened on D′ and not on D, after earlier runs in which
it did the same. docs/proofs/sequential.md has the proofs.

Source: Ville 1939; Waudby-Smith and Ramdas, "Estimating Means of Bounded Random Variables by Betting" (2024); Turner,
Ly and Grünwald, "Generic E-variables for Exact Sequential k-Sample Tests that Allow for Optional Stopping" (2024).
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import ANY_MECHANISM, Bound, Direction, Rigor
from dpassay.audits.statistics.counts import count
from dpassay.audits.statistics.two_sample import corner, log_bets
from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats, Integers
from dpassay.base.atomic_file import replacing

MAX_ROUNDS: Final = 1_000_000
"""For more, rounding errors have no proven bound. The same holds for runs before the first round."""

_VERSION = 2
_VIRTUAL = 0.2  # runs with the event, and as many without, that estimates of its rates begin with
_ROUNDING = 1e-9  # taken off the logarithm of every bet, more than rounding errors add to it


class Wealth:
    """The gambler's wealth for every ε of a grid, for one audit or several in parallel.

    Args:
        grid: shape (G,), ε.
        delta: δ.
        audits: shape of the parallel audits; () for one.
    """

    def __init__(self, grid: Floats, delta: float, audits: tuple[int, ...] = ()) -> None:
        self._grow, self._delta = np.exp(grid), delta
        self.rounds = 0
        self.hits, self.runs = np.zeros((*audits, 2)), np.zeros((*audits, 2))
        """What the rates of the event on D and on D′ are estimated from: in how many runs it happened, of how many."""
        self.logs, self.best = np.zeros((*audits, grid.size)), np.zeros((*audits, grid.size))
        """Logarithm of the wealth, and its running maximum."""

    def expect(self, hits: ArrayLike, runs: ArrayLike) -> None:
        """Sets what the next event did in earlier runs, on D and on D′, in every audit; shapes (audits, 2)."""
        self.hits, self.runs = (
            np.broadcast_to(np.asarray(counts, dtype=np.float64), self.hits.shape) for counts in (hits, runs)
        )

    def update(self, on_d: ArrayLike, on_d_prime: ArrayLike, share: Floats | None = None) -> None:
        """Adds one round to every audit; arguments of shape (audits): whether its event happened on D and on D′, and
        the share of the wealth that is bet; None for all."""
        happened = np.stack([np.asarray(side, dtype=np.float64) for side in (on_d, on_d_prime)], axis=-1)
        rates = estimated_rate(self.hits, self.runs)
        # Of many audits in parallel, several have seen the same.
        seen, index = np.unique(rates[..., 0] + 1j * rates[..., 1], return_inverse=True)
        hit, miss = log_bets(seen.real, seen.imag, self._grow, self._delta)
        index = index.reshape(rates.shape[:-1])
        bets = np.where(happened[..., None] > 0, hit[index], miss[index]).sum(axis=-2)
        self.hits, self.runs = self.hits + happened, self.runs + 1
        self.bet(bets if share is None else np.log1p(share[..., None] * np.expm1(bets)))

    def bet(self, factors: Floats) -> None:
        """Adds one round to every audit by the logarithms of its factors, shape (audits, G)."""
        self.logs = self.logs + np.where(factors == 0, 0.0, factors - _ROUNDING)
        self.rounds += 1
        self.best = np.maximum(self.best, self.logs)

    def keep(self, audits: Bools) -> None:
        """Drops all parallel audits but some, shape (audits)."""
        for name in _STATE:
            setattr(self, name, getattr(self, name)[audits])

    def most(self, earlier: int, rounds: int) -> Floats:
        """A bound on what so many further rounds can add to the logarithm of the wealth, for every ε, after at most so
        many earlier runs on each data set before the first round of all."""
        return _most_gained(self._grow, self._delta, earlier + self.rounds, rounds)

    def rejected(self, confidence: float) -> Integers:
        """The number of ε of the grid that are rejected before the first that is not, shape (audits)."""
        kept = ~(self.best >= -np.log1p(-confidence))  # log 1/β
        return np.asarray(np.where(kept.any(axis=-1), kept.argmax(axis=-1), kept.shape[-1]), dtype=np.int64)


def estimated_rate(hits: Any, runs: Any) -> Any:
    """The estimate of a rate after so many runs, from which events are bet on: numbers, or arrays of one shape."""
    return (hits + _VIRTUAL) / (runs + 2 * _VIRTUAL)


def _most_gained(grown: Floats, delta: float, runs: int, rounds: int) -> Floats:
    """Σ log (b/q)² over the rounds, where b is the largest estimate before a round: (n + α)/(n + 2α) after n runs.

    q = 1 − t is the larger rate of the corner; rounds with b ≤ q are not bet on.
    """
    t, last = corner(grown, delta), float(runs + rounds)
    first = np.clip(np.floor(_VIRTUAL / t - 2 * _VIRTUAL) + 1, float(runs), last)

    def product(n: Floats | float) -> Floats:
        return np.asarray(special.betaln(n + _VIRTUAL, _VIRTUAL))  # less a constant

    return np.asarray(np.maximum(2 * (product(last) - product(first) - (last - first) * np.log1p(-t)), 0.0))


class Sequential:
    """The state of an anytime-valid audit; `save` and `load` store and restore it.

    Args:
        delta: δ in [0, 1).
        confidence: 1 − β, simultaneous over all times.
        largest: largest ε of the grid, at most 64.
        step: of the grid; the grid lowers the bound by at most this much.
        earlier: the most runs on each data set that `expect` may tell of before the first round.
        adjacency, unit: of D and D′.

    Raises:
        ValueError: if a number is out of range.
    """

    def __init__(
        self,
        *,
        delta: float,
        confidence: float,
        largest: float = 16.0,
        step: float = 0.01,
        earlier: int = 0,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
        unit: Unit | None = None,
    ) -> None:
        validate.probability_below_one(delta=delta)
        validate.open_probability(confidence=confidence)
        if validate.positive(step=step) > validate.positive(largest=largest) or largest > 64 or largest / step > 1e6:
            raise ValueError(
                f"the grid needs step ≤ largest ≤ 64 and at most 10⁶ steps, not step {step!r} and largest {largest!r}"
            )
        self.delta, self.confidence, self.largest, self.step = delta, confidence, largest, step
        self.earlier = validate.integer(maximum=MAX_ROUNDS, earlier=earlier)
        self.adjacency, self.unit = Adjacency(adjacency), unit or Unit()
        grid = np.arange(0, largest + step / 2, step)
        self.grid = np.round(grid, 10 - math.floor(math.log10(step)))  # 1.89, not 1.8900000000000001
        self.wealth = Wealth(self.grid, delta)

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return self.wealth.rounds

    def expect(self, on_d: tuple[int, int], on_d_prime: tuple[int, int]) -> None:
        """Says what the event of the next rounds did in earlier runs. It only decides how well the gambler bets.

        Args:
            on_d, on_d_prime: in how many runs the event happened, and how many there were; earlier rounds may be
                among them.

        Raises:
            ValueError: if that is more runs than `earlier` and the rounds so far.
        """
        most = self.earlier + self.rounds
        for hits, runs in (on_d, on_d_prime):
            if not 0 <= hits <= runs <= most:
                raise ValueError(f"the event happened in at most all of {most} runs, not in {hits} of {runs}")
        self.wealth.expect(*zip(on_d, on_d_prime, strict=True))

    def update(self, on_d: bool, on_d_prime: bool) -> None:
        """Adds one round: whether its event, fixed before the round, happened on D and on D′.

        Raises:
            ValueError: if there were `MAX_ROUNDS` rounds.
        """
        if self.rounds >= MAX_ROUNDS:
            raise ValueError(f"an audit has at most {MAX_ROUNDS} rounds")
        self.wealth.update(bool(on_d), bool(on_d_prime))

    def bet(self, factors: Floats) -> None:
        """Adds one round that is bet on in any other way.

        Args:
            factors: shape (G,), for every ε of the grid the logarithm of a factor that has a mean of at most 1 under
                (ε, δ)-DP, given what was seen before. Of a gain as much is kept as a bet on an event could make in
                this round, so that the ceiling holds.

        Raises:
            ValueError: if there were `MAX_ROUNDS` rounds.
        """
        if self.rounds >= MAX_ROUNDS:
            raise ValueError(f"an audit has at most {MAX_ROUNDS} rounds")
        self.wealth.bet(np.minimum(factors, self.wealth.most(self.earlier, 1)))

    def update_all(self, rounds: Iterable[tuple[bool, bool]]) -> None:
        """Adds several rounds, in order."""
        for on_d, on_d_prime in rounds:
            self.update(on_d, on_d_prime)

    @property
    def epsilon(self) -> float:
        """The current bound: the largest ε of the grid such that all up to it are rejected; 0 if none is."""
        return self._last(int(self.wealth.rejected(self.confidence)))

    def could_exceed(self, epsilon: float, rounds: int) -> bool:
        """Whether the bound could exceed ε after so many further rounds.

        No round gains more than it would after perfect rounds. So the answer may be yes where no outcome would do, and
        is never no where one would.
        """
        needed = int(np.searchsorted(self.grid, epsilon, side="right")) + 1  # all up to the first ε above
        if needed > self.grid.size:
            return False
        best = np.maximum(self.wealth.best, self.wealth.logs + self.wealth.most(self.earlier, rounds))
        return bool((best[:needed] >= -np.log1p(-self.confidence)).all())

    def bound(self) -> Bound:
        """The current bound, a finite-sample lower bound that is valid at any time."""
        return Bound(
            direction=Direction.LOWER,
            value=self.epsilon,
            method="sequential",
            rigor=Rigor.FINITE_SAMPLE,
            adjacency=self.adjacency,
            unit=self.unit,
            delta=self.delta or None,
            confidence=self.confidence,
            ceiling=self.ceiling(self.rounds),
            null_family=ANY_MECHANISM,
            assumptions=("each run is independent of the others", "each event was fixed before its round"),
        )

    def at(self, confidence: float) -> Sequential:
        """The same rounds at another confidence. Bets do not depend on it, so the bound is as valid as this one."""
        other = copy.copy(self)
        other.confidence = validate.open_probability(confidence=confidence)
        return other

    def ceiling(self, rounds: int) -> float:
        """The largest ε that this many rounds can show, whatever they and the earlier runs showed."""
        gained = Wealth(self.grid, self.delta).most(self.earlier, count(rounds=rounds))
        return self._last(int((gained >= -np.log1p(-self.confidence)).sum()))

    def _last(self, rejected: int) -> float:
        return float(self.grid[max(0, rejected - 1)])

    def save(self, path: Path | str) -> None:
        """Writes the state as JSON, atomically."""
        settings = {name: getattr(self, name) for name in (*_SETTINGS, "rounds")}
        state = {name: getattr(self.wealth, name).tolist() for name in _STATE}
        body = {"version": _VERSION, **settings, "adjacency": str(self.adjacency), "unit": str(self.unit), **state}
        with replacing(Path(path)) as file:
            file.write(json.dumps(body).encode())

    @classmethod
    def load(cls, path: Path | str) -> Sequential:
        """Resumes from a saved state.

        Raises:
            ValueError: one line, if the file is not a saved state.
        """
        try:
            body: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            if body["version"] != _VERSION:
                raise KeyError("version")
            state = cls(
                **{name: body[name] for name in (*_SETTINGS, "adjacency")},
                unit=Unit.parse(body["unit"]),
            )
            for name in _STATE:
                values = np.array(body[name], dtype=np.float64)
                if values.shape != getattr(state.wealth, name).shape or not np.isfinite(values).all():
                    raise KeyError(name)
                setattr(state.wealth, name, values)
            wealth, rounds = state.wealth, validate.integer(maximum=MAX_ROUNDS, rounds=body["rounds"])
            wealth.rounds = rounds
            counted = (wealth.hits >= 0) & (wealth.hits <= wealth.runs) & (wealth.runs <= state.earlier + rounds)
            if not counted.all() or (wealth.best < np.maximum(wealth.logs, 0.0)).any():
                raise KeyError("state")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}: not the saved state of a sequential audit of this version ({type(error).__name__})"
            ) from None
        return state


def simulated_bounds(
    on_d: float,
    on_d_prime: float,
    rounds: int,
    *,
    delta: float,
    confidence: float,
    grid: Floats,
    earlier: int = 0,
    share: Callable[[Floats, int], Floats] | None = None,
    repetitions: int = 2000,
    seed: int = 0,
) -> Floats:
    """Bounds, shape (repetitions,), that audits of so many rounds give if the event has fixed probabilities, by
    simulation.

    Args:
        on_d, on_d_prime: probabilities of the event.
        delta, confidence: of the bound.
        grid: ascending ε from 0, shape (G,). The bound is one of them, or −1 if not even ε = 0 is rejected.
        earlier: number of runs on each data set from which the rates are estimated at first.
        share: of the wealth that is bet on the event after so many hits on D and on D′, shape (audits, 2), in so many
            runs on each; None for all of it.
    """
    validate.probability(on_d=on_d)
    validate.probability(on_d_prime=on_d_prime)
    rng, wealth = np.random.default_rng(seed), Wealth(grid, delta, (repetitions,))
    wealth.expect(rng.binomial(count(earlier=earlier), (on_d, on_d_prime), (repetitions, 2)), earlier)
    rejected, going = np.zeros(repetitions, dtype=np.int64), np.arange(repetitions)
    for number in range(count(rounds=rounds)):
        happened = rng.random(repetitions) < on_d, rng.random(repetitions) < on_d_prime
        bet = None if share is None else share(wealth.hits, earlier + number)
        wealth.update(happened[0][going], happened[1][going], bet)
        if number % 8 == 7:  # audits that have rejected all ε show no more
            rejected[going] = wealth.rejected(confidence)
            more = rejected[going] < grid.size
            going = going[more]
            wealth.keep(more)
            if not going.size:
                break
    rejected[going] = wealth.rejected(confidence)
    return np.asarray(np.where(rejected > 0, grid[np.maximum(rejected - 1, 0)], -1.0))


_STATE = ("hits", "runs", "logs", "best")
_SETTINGS = ("delta", "confidence", "largest", "step", "earlier")
