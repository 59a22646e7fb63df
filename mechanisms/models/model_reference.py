"""A language model by the place of its files, so that a worker can load the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from dpassay.mechanisms.compute.executor import kept
from dpassay.mechanisms.compute.workers import WorkerError, name_of_worker

if TYPE_CHECKING:
    from collections.abc import Collection

    from dpassay.mechanisms.models.decoding import RowShape
    from dpassay.mechanisms.models.language_model import LanguageModel


@dataclass(frozen=True, slots=True)
class ModelReference:
    """A model of the coordinator.

    Attributes:
        source: what it was loaded from: ``builtin``, a folder or a hub id.
        fingerprint, dtype: of the model.
        device: ``cpu`` or ``cuda``.
    """

    source: str
    fingerprint: str
    dtype: str
    device: str

    @classmethod
    def of(cls, model: LanguageModel) -> Self:
        """The reference of a model that was loaded by `LanguageModel.load`."""
        return cls(model.source, model.fingerprint, model.dtype, model.device.type)

    def load(self, exact_at: Collection[RowShape] = ()) -> LanguageModel:
        """The same model in this process; loaded once, from files of this machine.

        Args:
            exact_at: shapes at which the coordinator verified rows to be exact. They are verified here, too, since
                kernels differ between machines.

        Raises:
            WorkerError: one line, if it is not here, is another one, or its rows are not exact here.
        """
        from dpassay.mechanisms.models.language_model import LanguageModel

        def load() -> LanguageModel:
            try:
                return LanguageModel.load(self.source, self.device, dtype=self.dtype)
            except ValueError as error:
                raise WorkerError(f"worker on {name_of_worker()}: {error}") from None

        model = kept(self, load)
        if model.fingerprint != self.fingerprint:
            raise WorkerError(
                f"worker on {name_of_worker()}: has another model {self.source} than this machine; copy its files there"
            )
        for shape in exact_at:
            if model.row_shape(shape) != (shape, True):
                raise WorkerError(
                    f"worker on {name_of_worker()}: a row's logits depend there on the rows beside it, and on "
                    "this machine they do not; use machines of one kind"
                )
        return model
