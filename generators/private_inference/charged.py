"""Runs private inference under a ledger, for claims and for audits."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpassay.accounting.ledger.evidence import Basis, begin_run
from dpassay.accounting.ledger.run_files import open_ledger
from dpassay.base.errors import InputError, input_errors
from dpassay.base.progress import Progress
from dpassay.data.records import Record
from dpassay.generators.documents import Documents
from dpassay.generators.private_inference.words import rows_basis
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.prompts import PromptError
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.transcripts import Generation, Observer


def charge_and_generate(
    mechanism: PrivateInference,
    records: Sequence[Record],
    model: LanguageModel,
    ledger: Path,
    *,
    name: str,
    about: Mapping[str, Any],
    basis: Basis,
    progress: Progress,
    title: str,
    observers: Iterable[Observer] = (),
    source: Source = OS_ENTROPY,
    documents: Callable[[Generation, bytes], Documents] | None = None,
    anchor: Path | None = None,
    begun: Callable[[], None] = lambda: None,
) -> tuple[Generation, bytes]:
    """Runs private inference as the run `name` of a ledger file, or resumes that run.

    If `documents` is given, the documents that it returns are committed before the run is finished. `begun` is called
    before the first charge of a new run.

    Returns:
        The generation, and the batching key.

    Raises:
        InputError: if the ledger holds a run of that name with other parameters, another model or other records.
    """
    with open_ledger(ledger, anchor) as opened:
        with input_errors():
            new = name not in opened.runs()
            known = {} if new else opened.run(name).about
            key = known.get("key") or secrets.token_hex(32)
            plan = mechanism.row_plan(model)
            described = {**about, "model": model.fingerprint, "rows": plan.to_json(), "key": key, "noise": source.name}
            run = begin_run(
                opened,
                name,
                plan=mechanism.plan(),
                adjacency=mechanism.adjacency,
                unit=mechanism.unit,
                about=described,
                basis=basis.joined(rows_basis(plan)),
            )
        if new:  # what a resumed run is refused for is found later, and must be the only line
            begun()
        with progress.stage(title) as step:
            try:
                generation = generate(
                    mechanism,
                    records,
                    model,
                    run,
                    key=bytes.fromhex(key),
                    observers=tuple(observers),
                    progress=step,
                    source=source,
                )
            except (RunMismatchError, PromptError) as error:
                raise InputError(f"{ledger}: {error}") from None
        with input_errors(f"{ledger}: "):
            if documents is not None:
                documents(generation, bytes.fromhex(key)).commit(run)
        run.finish()
    return generation, bytes.fromhex(key)
