"""An anytime-valid lower bound on ε, which may be read after every round: testing by betting.

Before round s an event E is fixed; then the mechanism is run once on D and once on D′. Under (ε, δ)-DP the payoff
g = 1[Y ∈ E] − e^ε·1[Y′ ∈ E] − δ has a mean of at most 0. So if a gambler stakes λ ∈ [0, 1/(e^ε + δ)), chosen before the
round, the wealth W_s = Π(1 + λ·g) ever exceeds 1/β with probability at most β (Ville). Four gamblers bet on E, on its
complement, and on both with D and D′ exchanged; the mean of their wealths is a wealth process too.

There is one such wealth, with its own λ, for every ε of a grid. The bound is the largest ε such that *every* ε of the
grid up to it has been rejected at some time. If a mechanism is (ε*, δ)-DP, a bound above ε* requires that the first
ε ≥ ε* of the grid was rejected, which happens with probability at most β.

*Ceiling.* No sequence of rounds shows more than the one in which every event happened on D and not on D′. Let V(n) be
the wealth of a gambler on E after n such rounds, of payoff 1 − δ each. A round of any other outcome pays at most 0: it
multiplies the wealth by at most 1 and lowers every later λ. So k such rounds give the two gamblers whom they favour at
most V(k) each, and the two others, whom at most n − k rounds favour, at most V(n − k). As λ increases with n, V is
convex, and V(k) + V(n − k) ≤ V(n) + V(0), the value of the perfect sequence. λ decreases in ε, so the ε that V(n)
rejects are the first of the grid, and bisection finds how many there are.

Source: Ville 1939; Waudby-Smith and Ramdas, "Estimating Means of Bounded Random Variables by Betting" (2024).
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.arrays import Bools, Floats, Integers
from cupel.accounting.atomic_file import replacing
from cupel.accounting.bounds import ANY_MECHANISM, Bound, Direction, Rigor
from cupel.audits.statistics.counts import count

_MAX_STAKE = 0.9  # largest stake, as a fraction of the largest admissible λ
_VERSION = 1


class Wealth:
    """The gamblers' wealth for every ε of a grid, for one audit or several in parallel.

    Args:
        grid: shape (G,), ε.
        delta: δ.
        audits: shape of the parallel audits; () for one.
    """

    def __init__(self, grid: Floats, delta: float, audits: tuple[int, ...] = ()) -> None:
        self._grow, self._delta = np.exp(grid), delta
        self.rounds = 0
        shape = (*audits, 4, grid.size)
        self.logs, self.sums, self.squares = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.best = np.zeros((*audits, grid.size))
        """Running maximum of the logarithm of the mean wealth."""

    def update(self, on_d: ArrayLike, on_d_prime: ArrayLike) -> None:
        """Adds one round to every audit; arguments of shape (audits): whether its event happened on D and on D′."""
        one, other = (np.asarray(side, dtype=np.float64)[..., None] for side in (on_d, on_d_prime))
        hits = np.stack([one, other, 1 - one, 1 - other], axis=-2)  # E and its complement, in both directions
        misses = np.stack([other, one, 1 - other, 1 - one], axis=-2)
        payoff = hits - self._grow * misses - self._delta
        self.logs += np.log1p(self._bets() * payoff)
        self.sums += payoff
        self.squares += np.square(payoff)
        self.rounds += 1
        self.best = np.maximum(self.best, np.logaddexp.reduce(self.logs, axis=-2) - np.log(4))

    def keep(self, audits: Bools) -> None:
        """Drops all parallel audits but some, shape (audits)."""
        for name in _STATE:
            setattr(self, name, getattr(self, name)[audits])

    @property
    def grown(self) -> Floats:
        """e^ε + δ for every ε of the grid."""
        return self._grow + self._delta

    def _bets(self) -> Floats:
        return _bets(self.sums, self.squares, self.grown)

    def rejected(self, confidence: float) -> Integers:
        """The number of ε of the grid that are rejected before the first that is not, shape (audits)."""
        kept = self.best < -np.log1p(-confidence)  # log 1/β
        return np.asarray(np.where(kept.any(axis=-1), kept.argmax(axis=-1), kept.shape[-1]), dtype=np.int64)


def _bets(sums: Floats, squares: Floats, size: Floats) -> Floats:
    """λ from the past payoffs: mean over mean square, with one virtual round that lost a quarter of `size`."""
    return np.clip((sums - 0.25 * size) / (squares + 0.25 * np.square(size)), 0.0, _MAX_STAKE / size)


def _rejected_at_best(grid: Floats, delta: float, rounds: int, confidence: float) -> int:
    """The number of ε of the grid that are rejected if in every round the event happened on D and not on D′."""
    payoff, before = 1 - delta, np.arange(rounds, dtype=np.float64)

    def kept(epsilon: float) -> bool:
        bets = _bets(before * payoff, before * payoff**2, np.full(rounds, np.exp(epsilon) + delta))
        log_wealth = np.log1p(bets * payoff).sum()
        # Two of the four gamblers have this wealth; the other two never bet.
        return bool(np.logaddexp(log_wealth, 0.0) - np.log(2) < -np.log1p(-confidence))

    return bisect.bisect_left(grid, True, key=kept)


class Sequential:
    """The state of an anytime-valid audit; `save` and `load` store and restore it.

    Args:
        delta: δ in [0, 1).
        confidence: 1 − β, simultaneous over all times.
        largest: largest ε of the grid, at most 64.
        step: of the grid; the grid lowers the bound by at most this much.
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
        self.adjacency, self.unit = Adjacency(adjacency), unit or Unit()
        grid = np.arange(0, largest + step / 2, step)
        self._grid = np.round(grid, 10 - math.floor(math.log10(step)))  # 1.89, not 1.8900000000000001
        self._wealth = Wealth(self._grid, delta)

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return self._wealth.rounds

    def update(self, on_d: bool, on_d_prime: bool) -> None:
        """Adds one round: whether its event, fixed before the round, happened on D and on D′."""
        self._wealth.update(bool(on_d), bool(on_d_prime))

    def update_all(self, rounds: Iterable[tuple[bool, bool]]) -> None:
        """Adds several rounds, in order."""
        for on_d, on_d_prime in rounds:
            self.update(on_d, on_d_prime)

    @property
    def epsilon(self) -> float:
        """The current bound: the largest ε of the grid such that all up to it are rejected; 0 if none is."""
        return self._last(int(self._wealth.rejected(self.confidence)))

    def could_exceed(self, epsilon: float, rounds: int) -> bool:
        """Whether the bound could exceed ε after so many further rounds.

        A round multiplies no gambler's wealth by more than 1 + λ(1 − δ) at the largest λ, and the mean of the four
        wealths is at most the largest. So the answer may be yes where no outcome would do, and is never no where one
        would.
        """
        reached = self._grid <= epsilon
        size = self._wealth.grown
        best = self._wealth.logs.max(axis=-2) + rounds * np.log1p(_MAX_STAKE * (1 - self.delta) / size)
        rejected = np.maximum(self._wealth.best, best) >= -np.log1p(-self.confidence)
        return bool(rejected[reached].all())

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

    def ceiling(self, rounds: int) -> float:
        """The largest ε that this many rounds can show, whatever their outcomes; proven in the module's docstring."""
        return self._last(_rejected_at_best(self._grid, self.delta, count(rounds=rounds), self.confidence))

    def _last(self, rejected: int) -> float:
        return float(self._grid[max(0, rejected - 1)])

    def save(self, path: Path | str) -> None:
        """Writes the state as JSON, atomically."""
        settings = {name: getattr(self, name) for name in ("delta", "confidence", "largest", "step", "rounds")}
        state = {name: getattr(self._wealth, name).tolist() for name in _STATE}
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
                **{name: body[name] for name in ("delta", "confidence", "largest", "step", "adjacency")},
                unit=Unit.parse(body["unit"]),
            )
            for name in _STATE:
                values = np.array(body[name], dtype=np.float64)
                if values.shape != getattr(state._wealth, name).shape or np.isnan(values).any():
                    raise KeyError(name)
                setattr(state._wealth, name, values)
            state._wealth.rounds = validate.integer(rounds=body["rounds"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: not the saved state of a sequential audit ({type(error).__name__})") from None
        return state


def simulated_bounds(
    on_d: float,
    on_d_prime: float,
    rounds: int,
    *,
    delta: float,
    confidence: float,
    grid: Floats,
    repetitions: int = 2000,
    seed: int = 0,
) -> Floats:
    """Bounds that audits of so many rounds give if the event has fixed probabilities, by simulation.

    Args:
        on_d: probability of the event on D.
        on_d_prime: its probability on D′.
        rounds: of each audit.
        delta, confidence: of the bound.
        grid: ascending ε from 0, shape (G,). The bound is one of them, or −1 if not even ε = 0 is rejected.
        repetitions: number of simulated audits.
        seed: of the simulation.

    Returns:
        Shape (repetitions,).
    """
    validate.probability(on_d=on_d)
    validate.probability(on_d_prime=on_d_prime)
    rng, wealth = np.random.default_rng(seed), Wealth(grid, delta, (repetitions,))
    rejected, going = np.zeros(repetitions, dtype=np.int64), np.arange(repetitions)
    for number in range(count(rounds=rounds)):
        happened = rng.random(repetitions) < on_d_prime, rng.random(repetitions) < on_d
        wealth.update(happened[0][going], happened[1][going])
        if number % 8 == 7:  # audits that have rejected all ε show no more
            rejected[going] = wealth.rejected(confidence)
            more = rejected[going] < grid.size
            going = going[more]
            wealth.keep(more)
            if not going.size:
                break
    rejected[going] = wealth.rejected(confidence)
    return np.asarray(np.where(rejected > 0, grid[np.maximum(rejected - 1, 0)], -1.0))


_STATE = ("logs", "sums", "squares", "best")
