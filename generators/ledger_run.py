"""The run of a claim in its ledger, for generators whose texts are kept in a journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.ledger.entries import LedgerError
from dpassay.accounting.ledger.evidence import Basis, begin_run
from dpassay.accounting.ledger.run import Run
from dpassay.accounting.ledger.run_files import open_ledger, removed_if_unused
from dpassay.base.errors import InputError, input_errors
from dpassay.claims.base import Claim
from dpassay.generators.base import RunSettings
from dpassay.mechanisms.evolution.journal import JournalError
from dpassay.mechanisms.models.writers import WriterError
from dpassay.mechanisms.primitives.charged import RunMismatchError


@contextmanager
def open_run(
    claim: Claim, ledger: Path, plan: DpEvent, settings: RunSettings, basis: Basis, **about: Any
) -> Iterator[Run]:
    """The claim's run in its ledger, started or resumed, and finished after the block.

    Args:
        claim: of the run.
        ledger: the file.
        plan: what the run may charge.
        settings: of the run.
        basis: what bounds on it rest on.
        **about: what a resumed run must have in common with the one that began, beside the claim.

    Raises:
        InputError: if the ledger is damaged or holds a run of that name with another claim or another `about`, or if an
            endpoint or a disk fails; the same command resumes the run.
    """
    described = claim.model_dump(mode="json", exclude={"guarantee", "audits", "data", "model"})
    # Paths describe a machine, addresses a network; fingerprints and the run's digest cover their content.
    for hidden in ("embedder", "secrets", "endpoint", "judge", "first_table"):
        described["parameters"].pop(hidden, None)
    described["public"].pop("columns", None)
    with removed_if_unused(ledger, settings.anchor), open_ledger(ledger, settings.anchor) as opened:
        with input_errors():
            new = claim.name not in opened.runs()
            run = begin_run(
                opened,
                claim.name,
                plan=plan,
                adjacency=claim.adjacency,
                unit=Unit.parse(claim.unit),
                about={"claim": described, "noise": settings.source.name, **about},
                basis=basis,
            )
        if new:  # what a resumed run is refused for is found later, and must be the only line
            settings.warn(claim)
        try:
            yield run
        except RunMismatchError as error:
            raise InputError(f"{ledger}: {error}") from None
        except (JournalError, WriterError, LedgerError) as error:
            raise InputError(str(error)) from None
        except OSError as error:
            with input_errors():
                raise error
        run.finish()
