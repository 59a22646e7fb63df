"""The registry of generators: their claims, read from files, and their runs.

The folder of each holds `claim`, `run` with a function `generate`, if its claims may name audits, `audits` with a
function `audit`, and, if they leave something to choose, `choices` with a class of that name.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from dpassay.base.errors import InputError
from dpassay.base.private_files import PRIVATE
from dpassay.claims import read
from dpassay.claims.base import Claim
from dpassay.generators.aug_pe.claim import AugPEClaim
from dpassay.generators.dataset_vectors.claim import DatasetVectorsClaim
from dpassay.generators.declared.claim import DeclaredClaim
from dpassay.generators.marginals.claim import MarginalsClaim
from dpassay.generators.private_inference.claim import PrivateInferenceClaim
from dpassay.generators.secret_evolution.claim import SecretEvolutionClaim
from dpassay.generators.table_evolution.claim import TableEvolutionClaim
from dpassay.generators.two_stage.claim import TwoStageClaim

if TYPE_CHECKING:
    from dpassay.audits.result import AuditResult
    from dpassay.generators.base import BoundedGuarantee, FinishedRun, RunSettings
    from dpassay.generators.choices import ParameterChoices

CLAIMS: dict[str, type[Claim]] = {
    "private_inference": PrivateInferenceClaim,
    "secret_evolution": SecretEvolutionClaim,
    "aug_pe": AugPEClaim,
    "dataset_vectors": DatasetVectorsClaim,
    "two_stage": TwoStageClaim,
    "marginals": MarginalsClaim,
    "table_evolution": TableEvolutionClaim,
    "declared": DeclaredClaim,
}
"""Name of the mechanism, which is also the generator's folder → class of its claims."""


def read_claim(path: str | Path) -> Claim:
    """Reads and validates a claim file. Relative paths in it are resolved against the folder of the file.

    Raises:
        InputError: one line that names the file, the key, what was given and what is allowed.
    """
    path = Path(path)
    return read.validated(read.content_of(path), f"{path}: ", CLAIMS).located(path.parent)


def make_claim(content: Mapping[str, Any]) -> Claim:
    """A claim from the content of a claim file.

    Args:
        content: keys and values as in the file; relative paths are resolved against the current folder.

    Raises:
        InputError: one line that names the key, what was given and what is allowed.
    """
    return read.validated(dict(content), "", CLAIMS).located(Path())


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a claim file, for editors."""
    union: Any = typing.Union[tuple(CLAIMS.values())]  # noqa: UP007 - of as many as there are
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **TypeAdapter(union).json_schema()}


def mechanism_in_words(claim: Mapping[str, Any]) -> str:
    """What the mechanism of a claim does, for a report; empty if nothing but its name is known.

    Args:
        claim: as its file writes it.
    """
    known = CLAIMS.get(str(claim.get("mechanism")))
    return "" if known is None else known.mechanism_in_words(claim.get("parameters") or {})


def generate(claim: Claim, output: Path, settings: RunSettings) -> FinishedRun:
    """Runs the generator of a claim into a folder, or resumes the run that the folder holds.

    What is made is committed to the ledger, ``private/ledger.sqlite``, before the run is finished, and written beside
    it with a journal of all texts. Runners need torch, so they are imported here and not when a claim is read.

    Raises:
        InputError: if the data, the secrets or the model are invalid, or the folder holds another run; nothing has been
            written then. Also if an endpoint fails during the run; the same command resumes it.
    """
    from dpassay.accounting.ledger.run_files import check_ledger_is_there
    from dpassay.generators.ledger_run import begun_parameters

    check_ledger_is_there(output / PRIVATE)
    claim = claim.resolved(lambda: begun_parameters(output / PRIVATE, claim.name))
    runner = import_module(f"dpassay.generators.{claim.mechanism}.run")
    done: FinishedRun = runner.generate(claim, output, settings)
    return done


def audit(run: FinishedRun, claimed: BoundedGuarantee, confidence: float) -> list[AuditResult]:
    """The results of the audits that the claim of a finished run names.

    Args:
        run: of the claim.
        claimed: the first part of the claim, which is audited.
        confidence: with which all finite-sample bounds hold jointly.
    """
    if not run.claim.audits:
        return []
    auditor = import_module(f"dpassay.generators.{run.claim.mechanism}.audits")
    result: list[AuditResult] = auditor.audit(run, claimed, confidence)
    return result


def choices(claim: Claim) -> ParameterChoices[Any]:
    """What a claim leaves to choose so that it meets its guarantee.

    Raises:
        InputError: if its mechanism ran elsewhere.
    """
    name = f"dpassay.generators.{claim.mechanism}.choices"
    if find_spec(name) is None:
        raise InputError(
            f"mechanism: {claim.mechanism} leaves nothing to choose; `dpassay calibrate --help` lists the mechanisms "
            "that are calibrated without a claim"
        )
    chosen: ParameterChoices[Any] = import_module(name).choices(claim)
    return chosen
