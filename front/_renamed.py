"""Modules that were moved in version 0.2, importable under their old names until version 0.3."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

RENAMED = {
    "cupel.accounting.guarantee_conversions": "cupel.accounting.conversions.guarantees",
    "cupel.accounting.odometers": "cupel.accounting.filters.odometer",
    "cupel.attacks.extraction": "cupel.attacks.released.extraction",
    "cupel.attacks.holdout": "cupel.attacks.released.holdout",
    "cupel.attacks.membership_inference": "cupel.attacks.membership.scores",
    "cupel.attacks.neighbors": "cupel.attacks.black_box.neighbors",
    "cupel.attacks.ngram_model": "cupel.attacks.membership.ngram_model",
    "cupel.attacks.reference_models": "cupel.attacks.membership.reference_models",
    "cupel.attacks.repetitions": "cupel.attacks.black_box.repetitions",
    "cupel.attacks.secret_games": "cupel.attacks.secrets.games",
    "cupel.attacks.secret_reconstruction": "cupel.attacks.secrets.reconstruction",
    "cupel.attacks.secret_texts": "cupel.attacks.secrets.texts",
    "cupel.attacks.synthetic_text": "cupel.attacks.membership.synthetic_text",
    "cupel.audits.distinguishing": "cupel.audits.games.distinguishing",
    "cupel.audits.distinguishing_choice": "cupel.audits.games.distinguishing_choice",
    "cupel.audits.exact_epsilon": "cupel.audits.statistics.exact_epsilon",
    "cupel.audits.membership": "cupel.audits.games.membership",
    "cupel.audits.membership_design": "cupel.audits.games.membership_design",
    "cupel.audits.record_replay": "cupel.audits.games.replay.record_replay",
    "cupel.audits.released_data": "cupel.audits.games.released_data",
    "cupel.audits.released_values": "cupel.audits.games.replay.released_values",
    "cupel.audits.replayed_inference": "cupel.audits.games.replay.private_inference",
    "cupel.audits.secret_reconstruction": "cupel.audits.games.secret_reconstruction",
    "cupel.mechanisms.clustering": "cupel.mechanisms.embedding.centres",
    "cupel.mechanisms.corpora": "cupel.mechanisms.data.corpora",
    "cupel.mechanisms.downstream": "cupel.utility.downstream",
    "cupel.mechanisms.embedders": "cupel.mechanisms.embedding.embedder",
    "cupel.mechanisms.frechet": "cupel.utility.frechet",
    "cupel.mechanisms.language_model": "cupel.mechanisms.models.language_model",
    "cupel.mechanisms.randomness": "cupel.mechanisms.primitives.randomness",
    "cupel.mechanisms.records": "cupel.mechanisms.data.records",
    "cupel.mechanisms.secret_detection": "cupel.mechanisms.secret_evolution.detection",
    "cupel.mechanisms.secret_inclusion": "cupel.mechanisms.secret_evolution.inclusion",
    "cupel.mechanisms.text_metrics": "cupel.utility.text_metrics",
    "cupel.mechanisms.text_overlap": "cupel.mechanisms.data.text_overlap",
    "cupel.mechanisms.variation": "cupel.mechanisms.models.writers",
    "cupel.mechanisms.word_runs": "cupel.mechanisms.data.word_runs",
    "cupel.reports.schema": "cupel.reports.assay",
}
"""Old name → new name, of every module that a guide of version 0.1 imports."""


class _Finder(MetaPathFinder, Loader):
    """Imports a module under its old name: the same module, with a warning."""

    def __init__(self) -> None:
        self._spec: ModuleSpec | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in RENAMED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = RENAMED[spec.name]
        warnings.warn(f"{spec.name} is {new} since cupel 0.2", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put that of the old name there


def install() -> None:
    """Makes old names importable; once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
