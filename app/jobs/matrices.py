"""What the options of `dpassay compare matrix` and `dpassay calibrate matrix` say of a strategy."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpassay.accounting.matrices import (
    Cyclic,
    Sensitivity,
    Separated,
    Toeplitz,
    buffered_toeplitz,
    cyclic_poisson_event,
    matrix_event,
    read_matrix,
    sensitivity,
)
from dpassay.accounting.matrices.events import bands_of
from dpassay.accounting.matrices.participation import Participation
from dpassay.base import validate
from dpassay.base.arrays import Floats
from dpassay.base.number_format import format_number, format_upper

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class MatrixRelease:
    """A strategy and who takes part in which steps.

    Attributes:
        strategy: C; for given bands and columns of norm 1, the identity, which moves as far.
        steps: its number of columns.
        participation: of one record, or of one group of records where they are sampled.
        sampling_probability: of a record of the group whose turn it is; None without sampling.
        moved: the sensitivity of C; under sampling that of one column.
    """

    strategy: Floats | Toeplitz
    steps: int
    participation: Participation
    sampling_probability: float | None
    moved: Sensitivity

    def event(self, noise_multiplier: float) -> DpEvent:
        """What is charged."""
        if self.sampling_probability is None:
            return matrix_event(noise_multiplier, self.moved)
        assert isinstance(self.participation, Cyclic)
        return cyclic_poisson_event(
            noise_multiplier, self.strategy, self.sampling_probability, self.participation.period
        )

    @property
    def attained(self) -> bool:
        """Whether a record attains the event: under sampling, if all columns of a group are the largest one."""
        if self.moved.lower < self.moved.value * (1 - 1e-14):
            return False
        if self.sampling_probability is None:
            return True
        assert isinstance(self.participation, Cyclic)
        last = (self.steps - 1) // self.participation.period * self.participation.period
        return isinstance(self.strategy, Toeplitz) and last + self.strategy.bands <= self.steps

    def in_words(self) -> str:
        """The steps and the sensitivity."""
        moved = f"sensitivity {format_upper(self.moved.value)}, {self.moved.reason}"
        if not self.moved.exact:
            moved += f"; at least {format_number(self.moved.lower)} is attained"
        if isinstance(self.participation, Cyclic):
            how = f"{self.participation.period} groups of records in turn"
            if self.sampling_probability is not None:
                how += f", each record drawn with probability {format_number(self.sampling_probability)}"
        else:
            most = self.participation.most(self.steps)
            how = f"at most {most} participation{'s' if most != 1 else ''} of a record"
            if most > 1 and self.participation.separation > 1:
                how += f", at least {self.participation.separation} steps apart"
        return f"{self.steps} steps, {how}: {moved}"


@functools.lru_cache(maxsize=2)  # a search asks for many noises of one release
def matrix_release(
    *,
    matrix: Path | None,
    toeplitz: str | None,
    blt: str | None,
    bands: int | None,
    steps: int | None,
    participations: int | None,
    separation: int | None,
    every: int | None,
    sampling_probability: float | None,
) -> MatrixRelease:
    """The release that options describe; a `ValueError` for options out of range or that do not go together."""
    kinds = {"--matrix": matrix, "--toeplitz": toeplitz, "--blt": blt, "--bands": bands}
    if sum(value is not None for value in kinds.values()) != 1:
        raise ValueError(f"give one of {', '.join(kinds)}")
    if (steps is None) != (matrix is not None):
        raise ValueError("--steps is needed with --toeplitz, --blt and --bands, and follows from --matrix")
    strategy: Floats | Toeplitz
    if matrix is not None:
        strategy = read_matrix(matrix)
    else:
        assert steps is not None
        strategy = _toeplitz(toeplitz, blt, steps)
    columns = strategy.steps if isinstance(strategy, Toeplitz) else strategy.shape[1]
    if bands is not None:
        validate.integer(minimum=1, maximum=columns, bands=bands)
    if every is not None and (participations is not None or separation is not None):
        raise ValueError("--every says in which steps a record takes part: leave --participations and --separation out")
    if sampling_probability is not None:
        if participations is not None or separation is not None:
            raise ValueError(
                "with --sampling-probability groups take turns: leave --participations and --separation out"
            )
        validate.probability(sampling_probability=sampling_probability)
        least = bands_of(strategy)[0] if bands is None else bands
        groups = least if every is None else validate.integer(minimum=1, every=every)
        if groups < least:
            raise ValueError(f"cyclic samples need --every of at least the {least} bands of the strategy, not {groups}")
        once = sensitivity(strategy, Separated(1))
        return MatrixRelease(strategy, columns, Cyclic(groups), sampling_probability, once)
    participation: Participation
    if every is not None:
        participation, gap = Cyclic(every), every
    else:
        gap = 1 if separation is None else separation
        participation = Separated(1 if participations is separation is None else participations, gap)
    several = isinstance(participation, Cyclic) or participation.most(columns) > 1
    if bands is not None and several and gap < bands:
        raise ValueError(
            f"for --bands {bands} a record's steps must be at least {bands} apart, by --separation or --every: the "
            "sensitivity depends on the coefficients otherwise, which --toeplitz or --matrix give"
        )
    return MatrixRelease(strategy, columns, participation, None, sensitivity(strategy, participation))


def _toeplitz(toeplitz: str | None, blt: str | None, steps: int) -> Toeplitz:
    if toeplitz is not None:
        return Toeplitz(_numbers(toeplitz, "toeplitz"), steps)
    if blt is None:
        return Toeplitz([1.0], steps)
    pairs = [pair.split(":") for pair in blt.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"blt must be scale:decay pairs with commas between them, such as .2:.9,.1:.5, not {blt!r}")
    scales, decays = (_numbers(",".join(column), "blt") for column in zip(*pairs, strict=True))
    return buffered_toeplitz(scales, decays, steps)


def _numbers(text: str, name: str) -> list[float]:
    try:
        return [float(item) for item in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers with commas between them, not {text!r}") from None
