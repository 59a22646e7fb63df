"""Two-stage fine-tuning of a language model on a table, and sampling of rows from it.

1. Stage 1, without private data: the model learns the format of rows, from rows drawn uniformly from the public domains
   (``uniform``), or from another, public table (``table``). It is left out with ``none``.
2. Stage 2: AdamW on noisy sums of clipped gradients of Poisson samples of private rows (`descent`). Each step is one
   release: a Poisson-sampled Gaussian mechanism with the public rate batch_size/records.
3. Rows are sampled from the model (`sampling`), which is post-processing.

Each row's loss is a function of the row alone, weighted by the roles of its tokens, so that its gradient is, too. The
published code divides a batch's loss by the batch's number of tokens, so that one row moves the gradients of all others
before they are clipped, and it cuts shuffled rows into batches of a fixed size while it accounts for Poisson samples;
``as_published`` does so.

Proofs: docs/proofs/two-stage.md.

Source: "DP-2Stage: Adapting Language Models as Differentially Private Tabular Data Generators", sections A and B.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.gaussian import sum_sensitivity
from dpassay.base import validate
from dpassay.data.batching import keyed_hash
from dpassay.data.table_schema import Row
from dpassay.mechanisms.primitives.public_fields import check_adjacency
from dpassay.mechanisms.two_stage.row_tokens import SERIALIZERS, Role

if TYPE_CHECKING:
    from dpassay.mechanisms.two_stage.gradients import WeightedRow
    from dpassay.mechanisms.two_stage.row_tokens import RowTokens


_NOISE = (2.0**-20, 2.0**20)
_CLIP = (1e-30, 1e30)
"""Wider than anybody needs, and far from where floating-point numbers end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStage:
    """The public description of a run: parameters only, which do not depend on the data.

    Attributes:
        noise_multiplier: σ/Δ of each step, from 2⁻²⁰ to 2²⁰, where Δ is the sensitivity of a sum; 0 is
            the unprotected control.
        records: the public number of rows n.
        batch_size: expected number of rows of a step; the sampling rate is batch_size/n.
        steps: number of steps of the second stage.
        clip: C, to which each row's gradient is clipped, from 10⁻³⁰ to 10³⁰.
        learning_rate: of AdamW, in both stages.
        weight_decay: of AdamW, in both stages.
        value_weight: α: weight of the loss of tokens of values; all others have 1 − α.
        serializer: how a row is written as text: a name of `row_tokens.SERIALIZERS`.
        shuffle: whether the order of columns changes from step to step, by a hash of step and record.
        first_stage: what the model learns before it sees private rows: ``uniform`` rows of the public domains, a
            public ``table``, or ``none``.
        first_steps: number of steps of the first stage, each on `batch_size` rows.
        lora_rank: rank of LoRA matrices beside all linear layers; 0 trains all weights.
        precision: ``float32``, or ``bfloat16`` for mixed precision.
        sampling: ``poisson``, or, as published, ``shuffled``: batches of exactly batch_size rows of shuffled epochs.
        loss: of a ``row``, or, as published, divided by numbers of tokens of the ``batch``.
        seed: of public choices only; noise has no seed.
        variant: ``sound`` or ``as_published``.
        adjacency: add_remove or replace_one.
        unit: record.
    """

    noise_multiplier: float
    records: int
    batch_size: int
    steps: int
    clip: float = 1.0
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    value_weight: float = 0.65
    serializer: str = "sentence"
    shuffle: bool = True
    first_stage: Literal["uniform", "table", "none"] = "uniform"
    first_steps: int = 200
    lora_rank: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    sampling: Literal["poisson", "shuffled"] = "poisson"
    loss: Literal["row", "batch"] = "row"
    seed: int = 0
    variant: Literal["sound", "as_published"] = "sound"
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)

    def __post_init__(self) -> None:
        if validate.non_negative(noise_multiplier=self.noise_multiplier) and not (
            _NOISE[0] <= self.noise_multiplier <= _NOISE[1]
        ):
            raise ValueError(
                f"noise_multiplier must be 0, or from {_NOISE[0]:.3g} to {_NOISE[1]:.3g}, not {self.noise_multiplier!r}"
            )
        for name in ("records", "batch_size", "steps"):
            validate.integer(minimum=1, **{name: getattr(self, name)})
        for name in ("first_steps", "lora_rank", "seed"):
            validate.integer(minimum=0, **{name: getattr(self, name)})
        for name in ("clip", "learning_rate"):
            validate.positive(**{name: getattr(self, name)})
        if not _CLIP[0] <= self.clip <= _CLIP[1]:
            raise ValueError(f"clip must be from {_CLIP[0]:.0e} to {_CLIP[1]:.0e}, not {self.clip!r}")
        validate.non_negative(weight_decay=self.weight_decay)
        validate.probability(value_weight=self.value_weight)
        validate.one_of(tuple(SERIALIZERS), serializer=self.serializer)
        validate.one_of(("uniform", "table", "none"), first_stage=self.first_stage)
        validate.one_of(("float32", "bfloat16"), precision=self.precision)
        validate.one_of(("poisson", "shuffled"), sampling=self.sampling)
        validate.one_of(("row", "batch"), loss=self.loss)
        validate.one_of(("sound", "as_published"), variant=self.variant)
        if self.batch_size > self.records:
            raise ValueError(f"batch_size must be at most records ({self.records}), not {self.batch_size}")
        if self.first_stage != "none" and not self.first_steps:
            raise ValueError("first_steps must be at least 1; for a single stage give first_stage: none")
        check_adjacency(self.adjacency)
        if self.unit != Unit():
            raise ValueError(f"unit must be record for two_stage, not {str(self.unit)!r}: each row has one gradient")
        if self.variant == "sound" and (self.sampling, self.loss) != ("poisson", "row"):
            raise ValueError(
                "sampling shuffled and loss batch are for variant as_published; the proof needs poisson and row"
            )

    @property
    def rate(self) -> float:
        """The probability with which a row is in a batch."""
        return self.batch_size / self.records

    @property
    def releasable(self) -> bool:
        """Whether the output of a run is protected, and the accounting covers the algorithm as it runs."""
        return self.variant == "sound" and self.noise_multiplier > 0

    def step_event(self) -> DpEvent:
        """The event of a step.

        Accountants assume a contribution of length 1 of each unit and double it under replace_one, as the sums do.
        Nothing is proven for shuffled batches, nor for a loss that couples rows: one row more moves all batches, and an
        interrupted epoch begins with another order, so that a row may be in several of its batches.
        """
        if not self.noise_multiplier or self.loss == "batch" or self.sampling == "shuffled":
            return dp_event.NonPrivateDpEvent()
        item = dp_event.GaussianDpEvent(sum_sensitivity(self.adjacency) * self.noise_multiplier)
        return item if self.rate >= 1 else dp_event.PoissonSampledDpEvent(self.rate, item)

    def plan(self) -> DpEvent:
        """The event that a whole run charges, in the ledger's canonical form; known before any data are read."""
        return events.compose([(self.step_event(), self.steps)])

    def published_plan(self) -> DpEvent:
        """The event by the paper's accounting: Poisson samples, of which a row moves a sum by C."""
        return dataclasses.replace(self, sampling="poisson", loss="row").plan()

    def order(self, step: int, slotting_id: str, columns: int) -> list[int]:
        """The order of columns of a record in a step; it depends on no other record."""
        if not self.shuffle:
            return list(range(columns))
        key = hashlib.sha256(f"two stage {self.seed}".encode()).digest()
        drawn = np.random.default_rng([step, keyed_hash(key, "order", slotting_id)]).permutation(columns)
        return [int(index) for index in drawn]

    def weighted(self, tokens: RowTokens, row: Row, order: Sequence[int]) -> WeightedRow:
        """A serialised row with the weights of its tokens."""
        from dpassay.mechanisms.two_stage.gradients import WeightedRow

        ids, roles = tokens.encoded({index: row[index] for index in order})
        alpha = self.value_weight
        return WeightedRow(ids, [alpha if role is Role.VALUE else 1 - alpha for role in roles[1:]])
