"""The mechanisms that `dpassay compare` and `dpassay calibrate` know.

A mechanism is a class whose fields are the options of its commands, with their help, and a row of `COMPARED` or of
`CALIBRATED`. The command line reads this module at once, so what is slow to import is imported where it is needed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.accounting.names import LAYER_METHODS, METHODS, ORDERS, RUN_DISTRIBUTIONS, SECRET_METHODS
from dpassay.base import validate
from dpassay.base.number_format import format_number, format_upper

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpassay.accounting.adjacency import Adjacency, Unit
    from dpassay.accounting.comparison.comparison import Answers
    from dpassay.accounting.comparison.curves import Other
    from dpassay.accounting.comparison.releases import Layers
    from dpassay.accounting.events import SecretReleaseDpEvent
    from dpassay.accounting.tuning.statement import Tuning
    from dpassay.jobs.matrices import MatrixRelease

MAX_RELEASES = 10**9
"""The most steps, releases, selections or rounds of a mechanism."""
MAX_OCCURRENCES = 10**6
SAMPLED_UNITS = ("record", "user")
"""What a draw of a sample chooses, with all of its records."""

_MAX_STEPS = 10**7
_MAX_ROUNDS = 10**4


@dataclass(frozen=True)
class Mechanism:
    """A mechanism that charges one event. Subclasses add its parameters.

    Attributes:
        at: what the bounds are at: delta, or p for the probability of guessing a secret.
        adjacency: the default neighbouring relation.
        methods: the methods that are compared: accountants, and what `others` adds to them.
        assumptions: of all bounds, in sentences.
        finds: the words of `--find`, the default first, and the parameter that each means.
        stands_in: parameters from which others follow, which then need not be given.
        repeated: the parameter that counts its releases.
        sampled: whether records are drawn.
        in_steps: whether an event that is repeated is one of its steps.
    """

    at: ClassVar[str] = "delta"
    adjacency: ClassVar[str] = "add_remove"
    methods: ClassVar[tuple[str, ...]] = METHODS
    assumptions: ClassVar[tuple[str, ...]] = ()
    finds: ClassVar[Mapping[str, str]] = {}
    stands_in: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    repeated: ClassVar[str] = "count"
    sampled: ClassVar[bool] = False
    in_steps: ClassVar[bool] = True

    def release(self, adjacency: str) -> DpEvent:
        """What one release is charged; a `ValueError` for parameters out of range."""
        raise NotImplementedError

    def event(self, adjacency: str) -> DpEvent:
        """What is charged; a `ValueError` for parameters out of range."""
        from dp_accounting import dp_event

        release, count = self.release(adjacency), getattr(self, self.repeated)
        validate.integer(minimum=1, maximum=MAX_RELEASES, **{self.repeated: count})
        return dp_event.SelfComposedDpEvent(release, count)

    def in_words(self, adjacency: str) -> str:
        """The mechanism and its parameters."""
        raise NotImplementedError

    def derived(self) -> Mapping[str, float]:
        """The parameters that followed from others, by name."""
        return {}

    def attained(self) -> bool:
        """Whether the event is what the mechanism costs in the worst case, and not more."""
        return True

    def taken_for(self) -> tuple[str, DpEvent] | None:
        """What such a run is often accounted as, in words, and its event; None if it is accounted as what it is."""
        return None

    def others(self, adjacency: str, delta: float) -> tuple[Answers, Mapping[str, Other]]:
        """Answers and curves of a method besides the accountants."""
        return {}, {}

    def search(self, find: str) -> ParameterSearch:
        """How the parameter that a word of `finds` means is searched, given the other parameters."""
        raise NotImplementedError

    def noise_or_repetitions(self, find: str, least: float, most: float = 1e6) -> ParameterSearch:
        """The search for a noise multiplier in an interval, or else for how often it is `repeated`."""
        if find == "noise":
            return ParameterSearch("noise_multiplier", (least, most), 1.0, decreasing=True)
        return ParameterSearch(self.repeated, (1, _MAX_STEPS), 10, integer=True)


@dataclass(frozen=True)
class DpSgd(Mechanism):
    """Gaussian sums over Poisson samples."""

    noise_multiplier: Annotated[float, "σ over the clipping norm, above 0."]
    sampling_probability: Annotated[float | None, "Probability that a record is in a batch, in (0, 1]."] = None
    steps: Annotated[int | None, "Number of steps, at least 1."] = None
    records: Annotated[
        int | None, "With --batch-size: number of records. The sampling probability is batch size / records."
    ] = None
    batch_size: Annotated[int | None, "With --records: expected size of a batch, at least 1."] = None
    epochs: Annotated[
        float | None, "With --records and --batch-size: epochs of records / batch size steps, rounded up in all."
    ] = None
    tuning_runs: Annotated[int | None, "Fixed number of such runs, all of which are charged."] = None
    tuning_mean: Annotated[
        float | None, "Instead of --tuning-runs: mean of a random number of runs, of which only the best is released."
    ] = None
    tuning_distribution: Annotated[
        str | None,
        "With --tuning-mean: geometric (default), poisson, logarithmic or truncated_negative_binomial.",
        RUN_DISTRIBUTIONS,
    ] = None
    tuning_shape: Annotated[float | None, "Shape of a truncated negative binomial number of runs, at least 0."] = None

    assumptions = (
        "Each batch is a Poisson sample: every record is in it with the sampling probability, independently. Shuffled "
        "batches (dpassay compare shuffled) and batches of a fixed size are other mechanisms, and none of these bounds "
        "holds for them.",
    )
    finds: ClassVar = {"noise": "noise_multiplier", "rate": "sampling_probability", "steps": "steps"}
    stands_in: ClassVar = {
        "sampling_probability": ("records", "batch_size"),
        "steps": ("epochs", "records", "batch_size"),
    }
    sampled = True

    @property
    def rate(self) -> float:
        """The sampling probability; a `ValueError` unless it, or records and batch size, are given."""
        if (self.records is None) != (self.batch_size is None):
            raise ValueError("--records and --batch-size go together")
        known = self.sampling_probability
        if known is not None and self.batch_size is None:
            return float(validate.probability(sampling_probability=known))
        if known is not None or self.records is None or self.batch_size is None:
            raise ValueError("give either --sampling-probability, or --records and --batch-size")
        validate.integer(minimum=1, records=self.records)
        validate.integer(minimum=1, maximum=self.records, batch_size=self.batch_size)
        return self.batch_size / self.records

    @property
    def step_count(self) -> int:
        """The number of steps; a `ValueError` unless it, or the epochs of a number of records, are given."""
        if self.steps is not None and self.epochs is None:
            return validate.integer(minimum=1, maximum=MAX_RELEASES, steps=self.steps)
        if self.steps is not None or self.epochs is None:
            raise ValueError("give either --steps, or --epochs with --records and --batch-size")
        if self.records is None or self.batch_size is None:
            raise ValueError("--epochs needs --records and --batch-size")
        validate.positive(epochs=self.epochs)
        steps = Fraction(self.epochs) * self.records / self.batch_size
        if steps > MAX_RELEASES:
            raise ValueError(f"{format_number(self.epochs)} epochs are more than {MAX_RELEASES} steps")
        return math.ceil(steps)

    def release(self, adjacency: str) -> DpEvent:
        from dp_accounting import dp_event

        validate.positive(noise_multiplier=self.noise_multiplier)
        rate = validate.positive(sampling_probability=self.rate)
        return dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(self.noise_multiplier))

    def event(self, adjacency: str) -> DpEvent:
        from dp_accounting import dp_event

        run = dp_event.SelfComposedDpEvent(self.release(adjacency), self.step_count)
        return run if self.tuning is None else self.tuning.of(run)

    @property
    def tuning(self) -> Tuning | None:
        """The runs that were tried, if it is said; a `ValueError` for numbers out of range."""
        from dpassay.accounting.tuning.statement import Tuning

        said = self.tuning_runs, self.tuning_mean, self.tuning_distribution, self.tuning_shape
        if said == (None, None, None, None):
            return None
        try:
            return Tuning(*said)
        except ValueError as error:
            raise ValueError(f"--tuning-…: {error}") from None

    def derived(self) -> Mapping[str, float]:
        rate = {} if self.sampling_probability is not None else {"sampling_probability": self.rate}
        return rate | ({} if self.steps is not None else {"steps": self.step_count})

    def in_words(self, adjacency: str) -> str:
        of, run = "", ""
        if self.records is not None:
            of = f" ({self.batch_size} of {self.records} records)"
        if self.epochs is not None:
            run = f" ({format_number(self.epochs)} epoch{'s' if self.epochs != 1 else ''})"
        tuned = "" if self.tuning is None else f"; {self.tuning.in_words}"
        return (
            f"DP-SGD, noise multiplier {format_number(self.noise_multiplier)}, sampling probability "
            f"{format_number(self.rate)}{of}, {self.step_count} steps{run}{tuned}"
        )

    def search(self, find: str) -> ParameterSearch:
        match find:
            case "noise":
                start = max(1.0, 3 * self.rate * math.sqrt(self.step_count))
                return ParameterSearch("noise_multiplier", (1e-2, 1e6), start, decreasing=True)
            case "rate":
                return ParameterSearch("sampling_probability", (1e-9, 1.0), 1e-2)
            case _:
                return ParameterSearch("steps", (1, _MAX_STEPS), 1000, integer=True)


def stated_unit(mechanism: type[Mechanism], unit: str, records_per_user: int | None, sampled_by: str | None) -> Unit:
    """The unit of a bound, from options.

    Args:
        mechanism: what ran.
        unit: its name.
        records_per_user: of a user, the most records; each record is then drawn, and clipped, by itself.
        sampled_by: ``user`` if a user is drawn with all records, ``record`` if records are drawn.

    Raises:
        ValueError: if they do not go together, or something is missing.
    """
    from dpassay.accounting.adjacency import Unit

    known = Unit.parse(unit)
    if sampled_by is not None:
        validate.one_of(SAMPLED_UNITS, sampled_by=sampled_by)
        if not mechanism.sampled:
            raise ValueError("--sampled-by is for mechanisms that draw samples, and this one does not; leave it out")
    if known != Unit("user"):
        if records_per_user is not None or sampled_by == "user":
            raise ValueError(f"--records-per-user and --sampled-by user go with --unit user, not with {unit}")
        return known
    if sampled_by == "user" and records_per_user is not None:
        raise ValueError(
            "users who are drawn with all of their records count once, however many records they have; leave "
            "--records-per-user or --sampled-by user out"
        )
    if records_per_user is not None:
        return Unit("user", validate.integer(minimum=1, records_per_user=records_per_user))
    if mechanism.sampled and sampled_by != "user":
        raise ValueError(
            "--unit user also needs how users are drawn: --sampled-by user if each is drawn, and clipped, with all "
            "records, or --records-per-user K if records are drawn and no user has more than K"
        )
    return known


@dataclass(frozen=True)
class Allocation(Mechanism):
    """Gaussian sums in which each record takes part in a fixed number of random steps of every epoch."""

    noise_multiplier: Annotated[float, "σ over the clipping norm, above 0."]
    steps: Annotated[int, "Number of steps in an epoch, at least 1."]
    selected: Annotated[int, "In how many steps of an epoch each record takes part."] = 1
    epochs: Annotated[int, "Number of epochs, each with new choices."] = 1

    assumptions = (
        "In every epoch each record takes part in exactly the given number of steps (balls in bins), so batches have "
        "random sizes. Shuffled batches of a fixed size (dpassay compare shuffled) are another mechanism, and none of "
        "these bounds holds for them.",
    )
    finds: ClassVar = {"noise": "noise_multiplier", "epochs": "epochs"}
    sampled = True
    repeated = "epochs"

    def release(self, adjacency: str) -> DpEvent:
        from dp_accounting import dp_event

        from dpassay.accounting.events import RandomAllocationDpEvent

        validate.positive(noise_multiplier=self.noise_multiplier)
        validate.integer(minimum=1, steps=self.steps)
        validate.integer(minimum=1, maximum=self.steps, selected=self.selected)
        return RandomAllocationDpEvent(dp_event.GaussianDpEvent(self.noise_multiplier), self.selected, self.steps)

    def in_words(self, adjacency: str) -> str:
        return (
            f"random allocation, noise multiplier {format_number(self.noise_multiplier)}, each record in "
            f"{self.selected} of {self.steps} steps, {self.epochs} epoch{'s' if self.epochs != 1 else ''}"
        )

    def search(self, find: str) -> ParameterSearch:
        return self.noise_or_repetitions(find, 5e-2)


@dataclass(frozen=True)
class Shuffled(Mechanism):
    """Gaussian sums over the batches of a data set that is shuffled anew for each epoch."""

    noise_multiplier: Annotated[float, "σ over the clipping norm, above 0."]
    batches: Annotated[int | None, "Number of batches of an epoch, at least 1."] = None
    records: Annotated[int | None, "Instead of --batches, with --batch-size: number of records."] = None
    batch_size: Annotated[int | None, "With --records: size of a batch."] = None
    epochs: Annotated[int, "Number of epochs, each with a new shuffle, which run to their ends."] = 1

    adjacency = "zero_out"
    finds: ClassVar = {"noise": "noise_multiplier", "epochs": "epochs"}
    stands_in: ClassVar = {"batches": ("records", "batch_size")}
    sampled = True
    repeated = "epochs"

    @property
    def batch_count(self) -> int:
        """The batches of an epoch; a `ValueError` unless they, or records and batch size, are given."""
        if (self.records is None) != (self.batch_size is None):
            raise ValueError("--records and --batch-size go together")
        if (self.batches is None) == (self.records is None):
            raise ValueError("give either --batches, or --records and --batch-size")
        if self.batches is not None:
            return validate.integer(minimum=1, batches=self.batches)
        assert self.records is not None
        assert self.batch_size is not None
        validate.integer(minimum=1, records=self.records)
        return -(-self.records // validate.integer(minimum=1, maximum=self.records, batch_size=self.batch_size))

    @property
    def _rate(self) -> float:
        """The share of records in a batch, if all but the last have one size."""
        if self.batch_size is None or self.records is None:
            return 1 / self.batch_count
        return self.batch_size / self.records

    def release(self, adjacency: str) -> DpEvent:
        from dp_accounting import dp_event

        from dpassay.accounting.events import ShuffledBatchesDpEvent

        if adjacency == "add_remove":
            raise ValueError(
                "shuffled batches have a bound under zero_out and replace_one, not under add_remove, where one record "
                "more changes who is with whom in all batches"
            )
        validate.positive(noise_multiplier=self.noise_multiplier)
        return ShuffledBatchesDpEvent(dp_event.GaussianDpEvent(self.noise_multiplier), self.batch_count)

    def taken_for(self) -> tuple[str, DpEvent]:
        from dp_accounting import dp_event

        step = dp_event.PoissonSampledDpEvent(self._rate, dp_event.GaussianDpEvent(self.noise_multiplier))
        run = dp_event.SelfComposedDpEvent(step, self.batch_count * self.epochs)
        return f"Poisson samples at the rate {format_number(self._rate)}", run

    def derived(self) -> Mapping[str, float]:
        return {} if self.batches is not None else {"batches": self.batch_count}

    def in_words(self, adjacency: str) -> str:
        of = "" if self.records is None else f" ({self.batch_size} of {self.records} records)"
        return (
            f"shuffled batches, noise multiplier {format_number(self.noise_multiplier)}, {self.batch_count} "
            f"batches{of}, {self.epochs} epoch{'s' if self.epochs != 1 else ''}"
        )

    def search(self, find: str) -> ParameterSearch:
        return self.noise_or_repetitions(find, 1e-2)


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Gaussian releases of the whole data set."""

    noise_multiplier: Annotated[float, "σ over the L2 sensitivity to one record, above 0."]
    count: Annotated[int, "Number of releases, at least 1."] = 1

    finds: ClassVar = {"noise": "noise_multiplier", "count": "count"}

    def release(self, adjacency: str) -> DpEvent:
        from dp_accounting import dp_event

        validate.positive(noise_multiplier=self.noise_multiplier)
        return dp_event.GaussianDpEvent(self.noise_multiplier)

    def in_words(self, adjacency: str) -> str:
        return f"Gaussian noise, multiplier {format_number(self.noise_multiplier)}, {self.count} releases"

    def search(self, find: str) -> ParameterSearch:
        return self.noise_or_repetitions(find, 1e-4, 1e8)


@dataclass(frozen=True)
class Selection(Mechanism):
    """Selections of bounded range, such as tokens drawn by softmax from a mean of clipped logits."""

    count: Annotated[int, "Number of selections, at least 1."]
    eta: Annotated[float | None, "The bounded range of one selection, above 0."] = None
    clip: Annotated[float | None, "Instead of --eta: logits are clipped to ± this."] = None
    temperature: Annotated[float | None, "With --clip: the temperature of the softmax."] = None
    batch_size: Annotated[int | None, "With --clip: the public denominator of the mean."] = None

    methods = (*METHODS, "adaptive")

    def bounded_range(self, adjacency: str) -> float:
        """η of one selection; a `ValueError` unless either η or all that it follows from is given."""
        if self.eta is not None and self.clip is self.temperature is self.batch_size is None:
            return self.eta
        if self.eta is not None or self.clip is None or self.temperature is None or self.batch_size is None:
            raise ValueError("give either --eta, or all of --clip, --temperature and --batch-size")
        return softmax_range(self.clip, self.temperature, self.batch_size, adjacency)

    def release(self, adjacency: str) -> DpEvent:
        from dpassay.accounting.events import BoundedRangeSelectionDpEvent

        return BoundedRangeSelectionDpEvent(self.bounded_range(adjacency))

    def in_words(self, adjacency: str) -> str:
        return f"selection of bounded range η = {format_number(self.bounded_range(adjacency))}, {self.count} times"

    def others(self, adjacency: str, delta: float) -> tuple[Answers, Mapping[str, Other]]:
        from dpassay.accounting.comparison.releases import selection_answers

        return selection_answers(self.bounded_range(adjacency), self.count, delta, adjacency)


@dataclass(frozen=True)
class TokenSelection(Mechanism):
    """Tokens drawn by softmax from a mean of clipped logits."""

    temperature: Annotated[float, "The temperature of the softmax, above 0."]
    batch_size: Annotated[int, "The public denominator of the mean of logits."]
    clip: Annotated[float, "Logits are clipped to ± this, above 0."]
    count: Annotated[int, "Number of selections, at least 1."]

    finds: ClassVar = {"clip": "clip", "steps": "count"}

    def release(self, adjacency: str) -> DpEvent:
        return Selection(self.count, None, self.clip, self.temperature, self.batch_size).release(adjacency)

    def in_words(self, adjacency: str) -> str:
        tokens = "1 token" if self.count == 1 else f"{self.count} tokens"
        return (
            f"{tokens} drawn at temperature {format_number(self.temperature)} from a mean of logits, clip "
            f"{format_number(self.clip)}, batch size {self.batch_size}"
        )

    def search(self, find: str) -> ParameterSearch:
        if find == "clip":
            scale = self.batch_size * self.temperature
            return ParameterSearch("clip", (1e-6 * scale, 50 * scale), 0.1 * scale)
        return ParameterSearch("count", (1, _MAX_STEPS), 100, integer=True)


def softmax_range(clip: float, temperature: float, batch_size: int, adjacency: str) -> float:
    """η of softmax at temperature τ over the sum of logits clipped to [−c, c], divided by a public batch size s.

    Adding or removing a record changes a score by at most c/s, so η = 2c/(sτ); exchanging one, by at most 2c/s, so
    η = 4c/(sτ). Under zero_out, where η depends on the null record's logits, it is a `ValueError`.
    """
    validate.positive(clip=clip)
    validate.positive(temperature=temperature)
    validate.integer(minimum=1, batch_size=batch_size)
    if adjacency == "zero_out":
        raise ValueError("under zero_out η depends on the logits of the null record: give --eta instead of --clip")
    factor = 4 if adjacency == "replace_one" else 2
    return factor * clip / (batch_size * temperature)


@dataclass(frozen=True)
class Secret(Mechanism):
    """Noisy releases in each of which a secret occurs a random number of times."""

    sigma: Annotated[float, "Standard deviation of the noise, where an occurrence contributes at most 1."]
    occurrences: Annotated[int | None, "Number of records that hold the secret."] = None
    sampling_probability: Annotated[
        float | None, "With --occurrences: probability that each of these records is drawn."
    ] = None
    weights: Annotated[
        str | None, "Instead of --occurrences: probabilities that 0, 1, … such records are drawn, separated by commas."
    ] = None
    rounds: Annotated[int, "Number of releases, each with fresh noise and sampling."] = 1

    at = "p"
    adjacency = "secret"
    methods = SECRET_METHODS
    finds: ClassVar = {"noise": "sigma", "rounds": "rounds"}
    repeated = "rounds"

    def release(self, adjacency: str) -> SecretReleaseDpEvent:
        from dpassay.accounting.events import SecretReleaseDpEvent

        validate.non_negative(sigma=self.sigma)
        law = _law(self.occurrences, self.sampling_probability, self.weights)
        return SecretReleaseDpEvent(self.sigma, law.weights, law.remainder)

    def in_words(self, adjacency: str) -> str:
        secret = "a secret with given occurrences"
        if self.weights is None:
            probability = format_number(self.sampling_probability)
            secret = f"a secret in {self.occurrences} records, each drawn with probability {probability}"
        return f"{secret}, σ = {format_number(self.sigma)}, {self.rounds} round{'s' if self.rounds != 1 else ''}"

    def search(self, find: str) -> ParameterSearch:
        validate.integer(minimum=1, maximum=_MAX_ROUNDS, rounds=self.rounds)
        if find == "rounds":
            return ParameterSearch("rounds", (1, _MAX_ROUNDS), 10, integer=True)
        return ParameterSearch("sigma", (1e-3, 1e8), 2.0, decreasing=True)


@functools.lru_cache(maxsize=1)  # a search asks for many releases of one law
def _law(occurrences: int | None, sampling_probability: float | None, weights: str | None) -> SecretReleaseDpEvent:
    """A release with the law of the number of occurrences, and any noise."""
    from dpassay.accounting.events import SecretReleaseDpEvent
    from dpassay.accounting.secret_protection.accountant import secret_release

    if weights is not None and occurrences is None and sampling_probability is None:
        try:
            numbers = tuple(float(weight) for weight in weights.split(","))
        except ValueError:
            raise ValueError(f"weights must be probabilities with commas between them, not {weights!r}") from None
        return SecretReleaseDpEvent(1.0, numbers)
    if weights is not None or occurrences is None or sampling_probability is None:
        raise ValueError("give either --weights, or both of --occurrences and --sampling-probability")
    validate.integer(minimum=1, maximum=MAX_OCCURRENCES, occurrences=occurrences)
    validate.probability(sampling_probability=sampling_probability)
    return secret_release(1.0, [sampling_probability] * occurrences)


@dataclass(frozen=True)
class Vectors(Mechanism):
    """Means of several layers' vectors with Gaussian noise: the noise that an ε needs, or the ε of a noise."""

    layers: Annotated[int, "Number of layers, at least 1."]
    clip: Annotated[float, "Largest L2 norm of a record's vector in each layer, above 0."]
    records: Annotated[int, "The public divisor of the means, at least 1."]
    epsilon: Annotated[float | None, "ε of all layers together: the noise is computed."] = None
    sigma: Annotated[float | None, "Instead of --epsilon: standard deviation of the noise on each coordinate."] = None

    adjacency = "replace_one"
    methods = LAYER_METHODS

    def released(self, adjacency: Adjacency) -> Layers:
        """The means; a `ValueError` for parameters out of range, or unless one of ε and σ is given."""
        from dpassay.accounting.comparison.releases import Layers

        layers = Layers(self.layers, self.clip, self.records, adjacency)
        if (self.epsilon is None) == (self.sigma is None):
            raise ValueError("give either --epsilon, to ask for the noise, or --sigma, to ask for the ε")
        validate.positive(**({"sigma": self.sigma} if self.sigma is not None else {"epsilon": self.epsilon}))
        return layers

    def in_words(self, adjacency: str) -> str:
        given = f"σ = {format_number(self.sigma)} on each coordinate"
        if self.epsilon is not None:
            given = f"ε = {format_number(self.epsilon)} in all"
        return f"means of {self.layers} layers over {self.records} records, clip {format_number(self.clip)}, {given}"

    def notes(self, adjacency: str) -> tuple[str, ...]:
        """What the number is that is compared."""
        from dpassay.accounting.gaussian import mean_sensitivity

        if self.epsilon is None:
            return ()
        sensitivity = format_upper(float(mean_sensitivity(self.clip, self.records, adjacency)))
        return (
            f"The standard deviation of the noise is the noise multiplier times {sensitivity}, the sensitivity of the "
            "mean of one layer.",
        )


@dataclass(frozen=True)
class Tree(Mechanism):
    """Trees of Gaussian sums over epochs."""

    noise_multiplier: Annotated[float, "σ of the noise of a node over the clipping norm, above 0."]
    steps: Annotated[int, "Number of steps of one epoch, at least 1."]
    epochs: Annotated[int, "Number of epochs, in each of which a record takes part at most once."] = 1
    restart_every: Annotated[
        int | None, "A new tree begins after so many steps. Default: one tree over all epochs."
    ] = None
    order: Annotated[str, "Place of a record in the epochs: any, or same if it is that of the first epoch.", ORDERS] = (
        "any"
    )

    adjacency = "zero_out"
    assumptions = (
        "Each record takes part in at most one step of each epoch, and whether it does changes no step of the others.",
        "Each node of a tree is released once it is complete, with noise of its own.",
    )
    finds: ClassVar = {"noise": "noise_multiplier"}
    in_steps = False

    def event(self, adjacency: str) -> DpEvent:
        from dpassay.accounting.matrices import tree_event

        validate.positive(noise_multiplier=self.noise_multiplier)
        return tree_event(
            self.noise_multiplier, self.steps, self.epochs, restart_every=self.restart_every, order=self.order
        )

    def in_words(self, adjacency: str) -> str:
        from dpassay.accounting.matrices.trees import squared_move

        restarts = "one tree" if self.restart_every is None else f"a new tree every {self.restart_every} steps"
        nodes = squared_move(self.steps, self.epochs, self.restart_every, self.order)
        return (
            f"tree of Gaussian sums, noise multiplier {format_number(self.noise_multiplier)}, {self.epochs} "
            f"epoch{'s' if self.epochs != 1 else ''} of {self.steps} steps, {restarts}: as {nodes} Gaussian "
            f"release{'s' if nodes != 1 else ''}"
        )

    def search(self, find: str) -> ParameterSearch:
        return ParameterSearch("noise_multiplier", (1e-4, 1e8), 5.0, decreasing=True)


@dataclass(frozen=True)
class Matrix(Mechanism):
    """Rows of Cx + σZ for a strategy matrix C and the sums x of steps."""

    noise_multiplier: Annotated[float, "σ over the clipping norm, above 0."]
    matrix: Annotated[Path | None, "The strategy matrix: a .npy or .csv file with a column for each step."] = None
    toeplitz: Annotated[
        str | None, "Instead of --matrix, with --steps: first column of a Toeplitz strategy, with commas."
    ] = None
    blt: Annotated[
        str | None, "Instead, with --steps: scale:decay pairs of a buffered linear Toeplitz strategy, with commas."
    ] = None
    bands: Annotated[int | None, "Instead, with --steps: a strategy of so many bands whose columns have norm 1."] = None
    steps: Annotated[int | None, "Number of steps, at least 1."] = None
    participations: Annotated[
        int | None, "Most steps in which a record takes part. Default: 1; with --separation, as many as there is room."
    ] = None
    separation: Annotated[int | None, "Least number of steps from one participation of a record to the next."] = None
    every: Annotated[int | None, "Instead: a record takes part every so many steps, in cyclic order."] = None
    sampling_probability: Annotated[
        float | None,
        "With --every, or as many groups as bands: each record of the group whose turn it is is drawn with this "
        "probability.",
    ] = None

    adjacency = "zero_out"
    assumptions = (
        "Each record takes part in no other steps than stated, and whether it does changes no step of the others.",
        "Contributions to a step depend on released rows of earlier steps only, or all are chosen before the first.",
        "Where groups take turns, all records of one unit are in one of them.",
    )
    finds: ClassVar = {"noise": "noise_multiplier"}
    in_steps = False

    @property
    def released(self) -> MatrixRelease:
        """What is released; a `ValueError` for options out of range or that do not go together."""
        from dpassay.jobs.matrices import matrix_release

        given = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "noise_multiplier"}
        return matrix_release(**given)

    def event(self, adjacency: str) -> DpEvent:
        validate.positive(noise_multiplier=self.noise_multiplier)
        if self.sampling_probability is not None and adjacency == "replace_one":
            raise ValueError("cyclic samples have a bound under add_remove and zero_out, not under replace_one")
        return self.released.event(self.noise_multiplier)

    def derived(self) -> Mapping[str, float]:
        return {"sensitivity": self.released.moved.value}

    def attained(self) -> bool:
        return self.released.attained

    def in_words(self, adjacency: str) -> str:
        noise = format_number(self.noise_multiplier)
        return f"matrix mechanism, noise multiplier {noise}, {self.released.in_words()}"

    def search(self, find: str) -> ParameterSearch:
        return ParameterSearch("noise_multiplier", (1e-4, 1e8), 5.0, decreasing=True)


@dataclass(frozen=True)
class Command:
    """A command about a mechanism.

    Attributes:
        mechanism: the class whose fields are its options.
        help: what the command does.
        example: options to show.
    """

    mechanism: type[Mechanism]
    help: str
    example: str


COMPARED = {
    "dp-sgd": Command(
        DpSgd,
        "Compares the accountants on DP-SGD with Poisson-sampled batches.",
        "--noise-multiplier 1 --sampling-probability .01 --steps 10000 --delta 1e-5",
    ),
    "allocation": Command(
        Allocation,
        "Compares the accountants on Gaussian sums in which each record takes part in random steps (balls in bins).",
        "--noise-multiplier 1 --steps 1000 --epochs 20 --delta 1e-6",
    ),
    "shuffled": Command(
        Shuffled,
        "Compares the accountants on shuffled batches with Gaussian noise, often accounted as Poisson samples.",
        "--noise-multiplier 1 --batches 100 --epochs 20 --delta 1e-6",
    ),
    "gaussian": Command(
        Gaussian,
        "Compares the accountants on Gaussian releases of the whole data set.",
        "--noise-multiplier 5 --count 10 --delta 1e-5 -o figure.svg",
    ),
    "tree": Command(
        Tree,
        "Compares the accountants on trees of Gaussian sums, as of DP-FTRL, over epochs with or without restarts.",
        "--noise-multiplier 6 --steps 128 --epochs 3 --restart-every 128 --delta 1e-5",
    ),
    "matrix": Command(
        Matrix,
        "Compares the accountants on a matrix mechanism: noise correlated between steps by a strategy matrix.",
        "--noise-multiplier 4 --toeplitz 1,.5,.375 --steps 300 --participations 3 --separation 100 --delta 1e-5",
    ),
    "selection": Command(
        Selection,
        "Compares the accountants on bounded-range selections, such as tokens drawn from a mean of clipped logits.",
        "--clip 9 --temperature 1.5 --batch-size 64 --count 367 --delta 1e-5",
    ),
    "secret": Command(
        Secret,
        "Compares bounds on the probability of guessing a secret: exact, by composed curves, by a single Gaussian.",
        "--occurrences 80 --sampling-probability .01 --sigma 2 --p 1e-4 --rounds 10",
    ),
    "vectors": Command(
        Vectors,
        "Compares the noise for mean vectors of several layers: exact for all jointly, or layer by layer.",
        "--layers 4 --clip 1 --records 1000 --epsilon 5 --delta 1e-5",
    ),
}

CALIBRATED = {
    "dp-sgd": Command(
        DpSgd,
        "Finds the noise multiplier, sampling probability or number of steps of DP-SGD with Poisson-sampled batches.",
        "--target-epsilon 1 --delta 1e-5 --sampling-probability .01 --steps 1000",
    ),
    "allocation": Command(
        Allocation,
        "Finds the noise multiplier or the number of epochs if each record takes part in random steps (balls in bins).",
        "--target-epsilon 1 --delta 1e-6 --steps 1000 --epochs 20",
    ),
    "shuffled": Command(
        Shuffled,
        "Finds the noise multiplier or the number of epochs of Gaussian sums over shuffled batches.",
        "--target-epsilon 3 --delta 1e-6 --records 60000 --batch-size 256 --epochs 20",
    ),
    "gaussian": Command(
        Gaussian,
        "Finds the noise multiplier or the number of Gaussian releases of the whole data set.",
        "--target-epsilon 1 --delta 1e-5 --count 10",
    ),
    "tree": Command(
        Tree,
        "Finds the noise multiplier of trees of Gaussian sums, as of DP-FTRL.",
        "--target-epsilon 3 --delta 1e-5 --steps 128 --epochs 3 --restart-every 128",
    ),
    "matrix": Command(
        Matrix,
        "Finds the noise multiplier of a matrix mechanism.",
        "--target-epsilon 3 --delta 1e-5 --bands 32 --steps 2000 --sampling-probability .1",
    ),
    "selection": Command(
        TokenSelection,
        "Finds the clip or the number of tokens drawn from a mean of clipped logits.",
        "--target-epsilon 3 --delta 1e-5 --temperature 1.5 --batch-size 64 --count 128",
    ),
    "secret": Command(
        Secret,
        "Finds the noise or the number of rounds for secret protection: a guess is right with p before, with r after.",
        "--target-r 2e-4 --p 1e-4 --occurrences 80 --sampling-probability .01 --rounds 1",
    ),
}
