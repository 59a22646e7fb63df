"""Released vectors, as a file: what `DatasetVectors.release` released, with everything that is needed to write texts.

Noisy means, shots that noisy votes chose, and public numbers. It says whether it is protected: a control without noise,
or a run as published, must stay private. States, sums and votes without noise are otherwise never written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting import DpEvent

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.base import validate
from dpassay.base.arrays import Floats
from dpassay.base.atomic_file import replacing
from dpassay.base.errors import naming
from dpassay.base.former_name import FORMER_NAME
from dpassay.mechanisms.dataset_vectors import release
from dpassay.mechanisms.dataset_vectors.journalled import journalled
from dpassay.mechanisms.dataset_vectors.rejection import Accepts, accepted
from dpassay.mechanisms.dataset_vectors.steering import Where, check_blocks
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.evolution.loop import ATTEMPTS

if TYPE_CHECKING:
    from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors, DatasetVectorsResult
    from dpassay.mechanisms.dataset_vectors.texts import ShotWriter

_FORMAT = "dataset vectors 1"
_MAX_BYTES = 2**31


@dataclass(frozen=True, slots=True)
class OfLabel:
    """What was released for one label, or for all records if there are no labels.

    Attributes:
        label: public.
        shots: of the prompt, best first.
        means: the noisy mean difference, shape (blocks, d).
        norms: the mean length of a negative's states in each block; public.
    """

    label: str | None
    shots: tuple[str, ...]
    means: Floats = field(repr=False)
    norms: tuple[float, ...]

    def directions(self) -> Floats:
        """The means scaled to length 1 in each block, shape (blocks, d)."""
        return release.directions(self.means)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedVectors:
    """The vectors of all labels, their guarantee, and the prompt and the model for which they were made.

    Attributes:
        model: fingerprint of the language model.
        blocks: counted from 0.
        most_shots: for which prompts have room.
        template, longest_record: of the prompts.
        event: what the release charged.
        adjacency, unit: of the charge.
        labels: what was released for each.
        protected: whether the accounting covers them and their noise is the operating system's; otherwise they, and all
            texts under them, must stay private.
    """

    model: str
    blocks: tuple[int, ...]
    most_shots: int
    template: str | None
    longest_record: int
    event: DpEvent
    adjacency: Adjacency
    unit: Unit
    labels: tuple[OfLabel, ...] = field(repr=False)
    protected: bool

    @classmethod
    def of(
        cls, mechanism: DatasetVectors, result: DatasetVectorsResult, writer: ShotWriter, *, protected: bool
    ) -> ReleasedVectors:
        """The vectors of a finished run."""
        return cls(
            model=writer.model.fingerprint,
            blocks=result.blocks,
            most_shots=mechanism.shots,
            template=writer.template,
            longest_record=writer.longest_record,
            event=mechanism.plan(),
            adjacency=mechanism.adjacency,
            unit=mechanism.unit,
            protected=protected,
            labels=tuple(
                OfLabel(label, result.shots[label], means, result.norms[label]) for label, means in result.means.items()
            ),
        )

    def of_label(self, label: str | None) -> OfLabel:
        """What was released for a label.

        Raises:
            ValueError: if there is no such label.
        """
        for item in self.labels:
            if item.label == label:
                return item
        known = ", ".join(str(item.label) for item in self.labels)
        raise ValueError(f"the vectors are of the labels {known}, not of {label}")

    def steering(
        self, label: str | None, coefficient: float | Sequence[float], *, relative: bool = False
    ) -> dict[int, Floats]:
        """What is added to the output of each block: the coefficient times the direction.

        Args:
            label: one of `labels`.
            coefficient: β, of each block or of all.
            relative: whether it is in units of the mean length of the negatives' states in the block.
        """
        result = self.of_label(label)
        given = [coefficient] * len(self.blocks) if isinstance(coefficient, int | float) else list(coefficient)
        if len(given) != len(self.blocks):
            raise ValueError(f"coefficient must be one number, or one for each of {len(self.blocks)} blocks")
        scales = [validate.finite(coefficient=item) for item in given]
        if relative:
            scales = [scale * norm for scale, norm in zip(scales, result.norms, strict=True)]
        rows = result.directions()
        return {block: scale * row for block, scale, row in zip(self.blocks, scales, rows, strict=True)}

    @property
    def fingerprint(self) -> str:
        """SHA-256 over everything in the file."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def save(self, path: Path | str) -> None:
        """Writes a safetensors file, whole or not at all."""
        with naming(path), replacing(Path(path)) as file:
            file.write(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content that `save` writes."""
        from safetensors.numpy import save

        about = {
            "format": _FORMAT,
            "model": self.model,
            "blocks": list(self.blocks),
            "most_shots": self.most_shots,
            "template": self.template,
            "longest_record": self.longest_record,
            "event": events.to_json(self.event),
            "adjacency": str(self.adjacency),
            "unit": str(self.unit),
            "protected": self.protected,
            "labels": [
                {"label": item.label, "shots": list(item.shots), "norms": list(item.norms)} for item in self.labels
            ],
        }
        arrays = {f"means/{number}": np.ascontiguousarray(item.means) for number, item in enumerate(self.labels)}
        # One key, because the library writes several in any order, and the same vectors must give the same bytes;
        # under the former name, so that they do in runs that version 0.2 began.
        content: bytes = save(arrays, metadata={FORMER_NAME: json.dumps(about, sort_keys=True)})
        return content

    @classmethod
    def load(cls, path: Path | str) -> ReleasedVectors:
        """Reads a file that `save` wrote.

        Raises:
            ValueError: one line, if the file is invalid.
        """
        from safetensors import SafetensorError, safe_open

        path = Path(path)
        if not path.is_file():
            raise ValueError(f"vectors {str(path)!r}: there is no such file")
        try:
            if path.stat().st_size > _MAX_BYTES:
                raise TypeError
            with safe_open(str(path), framework="numpy") as file:
                about = json.loads((file.metadata() or {})[FORMER_NAME])
                if about["format"] != _FORMAT:
                    raise KeyError
                blocks = tuple(int(block) for block in about["blocks"])
                labels = []
                for number, item in enumerate(about["labels"]):
                    means = file.get_tensor(f"means/{number}").astype(np.float64)
                    if means.ndim != 2 or len(means) != len(blocks) or not np.isfinite(means).all():
                        raise TypeError
                    norms = tuple(float(norm) for norm in item["norms"])
                    label = None if item["label"] is None else str(item["label"])
                    labels.append(OfLabel(label, tuple(map(str, item["shots"])), means, norms))
            return cls(
                model=str(about["model"]),
                blocks=blocks,
                most_shots=validate.integer(minimum=0, most_shots=about["most_shots"]),
                template=None if about["template"] is None else str(about["template"]),
                longest_record=validate.integer(minimum=1, longest_record=about["longest_record"]),
                event=events.from_json(about["event"]),
                adjacency=Adjacency(about["adjacency"]),
                unit=Unit.parse(about["unit"]),
                labels=tuple(labels),
                protected=about["protected"] is True,
            )
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise ValueError(f"vectors {str(path)!r}: not a file of dataset vectors, or damaged") from None

    def check(self, writer: ShotWriter) -> None:
        """Checks that texts are written by the model and with the prompts for which the vectors were made.

        Raises:
            ValueError: one line.
        """
        if writer.model.fingerprint != self.model:
            raise ValueError(
                f"the vectors were made for the model of fingerprint {self.model[:12]}…, but {writer.model.name} has "
                f"{writer.model.fingerprint[:12]}…; give the model of the run"
            )
        check_blocks(writer.model.network, self.blocks)
        width = writer.model.network.config.hidden_size
        if any(item.means.shape[1] != width or len(item.norms) != len(self.blocks) for item in self.labels):
            raise ValueError(f"the vectors do not have the {width} coordinates of the model's hidden states")
        for name in ("template", "longest_record"):
            if getattr(writer, name) != getattr(self, name):
                raise ValueError(f"the vectors were made with {name} {getattr(self, name)!r}; use that")


def steered_texts(
    vectors: ReleasedVectors,
    writer: ShotWriter,
    label: str | None,
    seeds: Sequence[int],
    *,
    coefficient: float | Sequence[float],
    relative: bool = False,
    where: Where = "last",
) -> Iterator[tuple[str, bool]]:
    """Texts of a label under the released vectors, one for each seed, and whether each ended by itself.

    Post-processing of what was released: any number of texts costs nothing.

    Args:
        vectors: for this writer's model (`ReleasedVectors.check`).
        writer: with the prompts of the run.
        label: one of the vectors' labels.
        seeds: public.
        coefficient, relative: of `ReleasedVectors.steering`.
        where: ``last`` or ``all`` (`steering`).
    """
    vectors.check(writer)
    prompt = writer.prompt(label, vectors.of_label(label).shots, vectors.most_shots)
    added = vectors.steering(label, coefficient, relative=relative)
    return writer.texts(prompt, seeds, vectors=added, where=where)


def written(
    vectors: ReleasedVectors,
    writer: ShotWriter,
    label: str | None,
    count: int,
    *,
    seed: int,
    journal: Journal,
    coefficient: float | Sequence[float],
    relative: bool = False,
    where: Where = "last",
    accepts: Accepts | None = None,
    waste: int = ATTEMPTS,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Texts of a label under the released vectors, from the journal if they are there.

    Texts that are empty or rejected at each attempt are left out.

    Args:
        vectors: for this writer's model.
        writer: with the prompts of the run.
        label: one of the vectors' labels.
        count: number of texts.
        seed: public.
        journal: of the texts.
        coefficient, relative, where: of `steered_texts`.
        accepts: which texts are good enough; None for all (`rejection`).
        waste: how often each text is written at most.
        progress: called with the number of finished texts and `count`.

    Raises:
        WriterError: if all texts are empty or rejected.
    """
    validate.integer(minimum=1, count=count)
    done, seen = 0, progress or (lambda done, total: None)

    def finished(texts: int) -> None:
        nonlocal done
        done += texts
        seen(done, count)

    def steered(seeds: Sequence[int]) -> Iterator[tuple[str, bool]]:
        return steered_texts(vectors, writer, label, seeds, coefficient=coefficient, relative=relative, where=where)

    ask = steered if accepts is None else accepted(steered, accepts)
    return journalled(ask, journal, label, "text", count, seed=seed, finished=finished, attempts=waste)
