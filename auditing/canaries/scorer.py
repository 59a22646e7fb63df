"""The language model that scores echoes: what a plan fixes of it before the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from dpassay.base import defaults

if TYPE_CHECKING:
    from dpassay.mechanisms.models.fine_tuning import Training
    from dpassay.mechanisms.models.language_model import LanguageModel

BUILTIN = "builtin"
TEXTS = 5000
"""The largest number of texts that the model is fine-tuned on; a larger file is read whole, and this many are drawn."""
_BUILTIN_RATE, _FOLDER_RATE = defaults.LEARNING_RATE, 1e-4  # a small model learns at a higher rate


class PlannedScorer(BaseModel):
    """A public language model that is fine-tuned on synthetic text, and how.

    Attributes:
        source: ``builtin``, or the folder of the model.
        fingerprint: SHA-256 of its files.
        temperature: at which it writes the endings of canaries.
        texts: the largest number of texts that it is fine-tuned on.
        epochs, batch_size, learning_rate: of fine-tuning.
        seed: of the order of the texts, and of which are drawn from a larger file; public.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = BUILTIN
    fingerprint: str = ""
    temperature: float = defaults.CANARY_TEMPERATURE
    texts: int = TEXTS
    epochs: int = defaults.EPOCHS
    batch_size: int = defaults.BATCH_SIZE
    learning_rate: float = _BUILTIN_RATE
    seed: int = 0

    @classmethod
    def of(cls, source: str, temperature: float) -> PlannedScorer:
        """The model in a folder, or the built-in one.

        Raises:
            ValueError: if there is no model.
        """
        from dpassay.mechanisms.models import model_folder

        if source != BUILTIN and not Path(source).is_dir():
            raise ValueError(f"scorer must be {BUILTIN} or the folder of a language model, not {source!r}")
        return cls(
            source=source if source == BUILTIN else str(Path(source).resolve()),
            fingerprint=model_folder.fingerprint(model_folder.locate(source, False)),
            temperature=temperature,
            learning_rate=_BUILTIN_RATE if source == BUILTIN else _FOLDER_RATE,
        )

    @property
    def training(self) -> Training:
        """The settings of fine-tuning."""
        from dpassay.mechanisms.models.fine_tuning import Training

        return Training(epochs=self.epochs, batch_size=self.batch_size, learning_rate=self.learning_rate)

    def load(self, device: str) -> LanguageModel:
        """The model.

        Raises:
            ValueError: if it is not the one of the plan, or is gone.
        """
        from dpassay.mechanisms.models.language_model import LanguageModel

        if self.source != BUILTIN and not Path(self.source).is_dir():
            raise ValueError(f"{self.source}: the model that scores canaries is not there; put it back")
        model = LanguageModel.load(self.source, device, dtype="float32")
        if model.fingerprint != self.fingerprint:
            raise ValueError(f"{self.source}: is not the model of the plan; put back the one that it was made with")
        return model
