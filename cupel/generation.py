"""Runs a generator: data and model in, synthetic data and a ledger out, resumed where it was interrupted."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cupel.accounting.ledger import Ledger
from cupel.claim import BuiltinData, Claim, FileData
from cupel.errors import InputError, input_errors
from cupel.mechanisms import sentence_embedder
from cupel.mechanisms.clustering import BUILTIN
from cupel.mechanisms.hub_datasets import HubDataset
from cupel.mechanisms.inference_loop import OtherRunError
from cupel.mechanisms.language_model import LanguageModel
from cupel.mechanisms.private_inference import Generation, Observer, PrivateInference
from cupel.mechanisms.randomness import OS_ENTROPY, Source
from cupel.mechanisms.records import Record, builtin_records, read_records
from cupel.progress import Progress

BUILTIN_SEED = 0
"""The seed of the public choice which builtin records are drawn; it has nothing to do with noise."""


@dataclass(frozen=True)
class GeneratorRun:
    """A finished run of a generator, with where its files are."""

    claim: Claim
    mechanism: PrivateInference
    model: LanguageModel
    records: Sequence[Record]
    key: bytes
    generation: Generation
    documents_path: Path
    ledger_path: Path

    @property
    def written(self) -> int:
        """The number of complete documents."""
        return sum(document.complete for document in self.generation.documents)

    def summary(self) -> dict[str, Any]:
        """What a program wants to know of the run, in JSON types."""
        return {
            "name": self.claim.name,
            "documents": self.written,
            "path": str(self.documents_path),
            "ledger": str(self.ledger_path),
        }


def load_records(claim: Claim, download: bool = False) -> list[Record]:
    """The private records that the claim names.

    Args:
        claim: names them.
        download: whether a data set of the hub may be fetched.

    Raises:
        InputError: when the data are missing, are not what the claim says, or hold no record.
    """
    data = claim.data
    with input_errors("data: "):
        if isinstance(data, BuiltinData):
            return builtin_records(data.name, claim.public.records, BUILTIN_SEED)
        source = data.path if isinstance(data, FileData) else HubDataset(data.name, data.split, data.subset, download)
        records = read_records(source, text=data.text, label=data.label, id=data.id, user=data.user)
    if not records:
        raise InputError(f"data: {source} holds no record; a run needs at least one")
    return records


def load_model(claim: Claim, model: str | None, device: str, download: bool) -> LanguageModel:
    """The language model that the command line or else the claim names; the claim's embedder is fetched, too.

    Raises:
        InputError: when it is no model, or not on this machine.
    """
    embedder = claim.parameters.embedder
    with input_errors():
        if download and embedder != BUILTIN:
            sentence_embedder.model_folder(embedder, allow_network=True)
        return LanguageModel.load(model or claim.model, device, allow_network=download)


def run(
    claim: Claim,
    output: Path,
    *,
    model: str | None = None,
    device: str = "auto",
    download: bool = False,
    progress: Progress | None = None,
) -> GeneratorRun:
    """Loads data and model as the claim says and runs its generator into `output`.

    Raises:
        InputError: for bad data, a bad model, or a folder that holds another run; nothing has been written then.
    """
    records = load_records(claim, download)
    language_model = load_model(claim, model, device, download)
    return generate(claim, records, language_model, output, progress=progress or Progress())


def generate(
    claim: Claim,
    records: Sequence[Record],
    model: LanguageModel,
    output: Path,
    *,
    observers: Iterable[Observer] = (),
    progress: Progress,
    source: Source = OS_ENTROPY,
) -> GeneratorRun:
    """Runs the claim's generator over `records`, or goes on with the run that `output` holds.

    Documents are written to ``release/`` if the mechanism is the sound variant with some protection and its noise is
    the operating system's entropy, else to ``private/``; the ledger is ``private/ledger.sqlite``. The batching key is
    drawn once and kept in the ledger.
    """
    mechanism = claim.generator()
    with input_errors():
        mechanism.check(records, model)
    private, release = make_folders(output)
    ledger = private / "ledger.sqlite"
    # Paths tell of a machine; what the files hold is in the digest that the run begins with.
    about = {"claim": claim.model_dump(mode="json", exclude={"guarantee", "audits", "data", "model"})}
    about["claim"]["parameters"] = claim.parameters.model_dump(mode="json", exclude={"centres", "embedder"})
    generation, key = charge_and_generate(
        mechanism,
        records,
        model,
        ledger,
        name=claim.name,
        about=about,
        observers=observers,
        source=source,
        progress=progress,
        title="Generating",
    )
    releasable = mechanism.releasable and source.name == OS_ENTROPY.name
    folder = release if releasable else private
    path = folder / "synthetic.jsonl"
    write_documents(path, generation)
    if releasable:
        write_atomically(folder / "batching-key.txt", key.hex() + "\n")
        if (counts := generation.transcript.cluster_counts) is not None:
            write_atomically(folder / "cluster-counts.json", json.dumps(counts) + "\n")
    return GeneratorRun(claim, mechanism, model, records, key, generation, path, ledger)


def charge_and_generate(
    mechanism: PrivateInference,
    records: Sequence[Record],
    model: LanguageModel,
    ledger: Path,
    *,
    name: str,
    about: Mapping[str, Any],
    progress: Progress,
    title: str,
    observers: Iterable[Observer] = (),
    source: Source = OS_ENTROPY,
) -> tuple[Generation, bytes]:
    """Runs a mechanism under the run `name` of a ledger file, or goes on with that run.

    Returns:
        What was generated, and the batching key.

    Raises:
        InputError: when the ledger holds a run of that name with other parameters, another model or other records.
    """
    with input_errors():
        opened = Ledger.open(ledger)
    with opened:
        with input_errors():
            known = opened.run(name).about if name in opened.runs() else {}
            key = known.get("key") or secrets.token_hex(32)
            described = {**about, "model": model.fingerprint, "key": key, "noise": source.name}
            run = opened.begin(
                name, plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about=described
            )
        with progress.stage(title) as step:
            try:
                generation = mechanism.generate(
                    records,
                    model,
                    run,
                    key=bytes.fromhex(key),
                    observers=tuple(observers),
                    progress=step,
                    source=source,
                )
            except OtherRunError as error:
                raise InputError(f"{ledger}: {error}") from None
        run.finish()
    return generation, bytes.fromhex(key)


def make_folders(output: Path) -> tuple[Path, Path]:
    """Makes ``private/``, into which only the owner may look, and ``release/``.

    Raises:
        InputError: where a folder cannot be made.
    """
    private, release = output / "private", output / "release"
    with input_errors():
        release.mkdir(parents=True, exist_ok=True)
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
        private.chmod(0o700)  # also where the folder was there before
    return private, release


def write_documents(path: Path, generation: Generation) -> None:
    """The complete documents as JSON Lines and, beside it, as Parquet."""
    import pyarrow
    import pyarrow.parquet

    rows = [
        {"slot": document.slot, "label": document.label, "text": document.text}
        for document in generation.documents
        if document.complete
    ]
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    schema = pyarrow.schema([("slot", pyarrow.int64()), ("label", pyarrow.string()), ("text", pyarrow.string())])
    partial = path.with_suffix(".parquet.partial")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), partial)
    os.replace(partial, path.with_suffix(".parquet"))


def write_atomically(path: Path, text: str) -> None:
    """Writes a whole file or none: to a partial file beside it, then renamed. Under ``private/`` for the owner only."""
    os.replace(_partial(path, text), path)


def create_once(path: Path, text: str) -> None:
    """Makes a whole file where there is none; of two processes that do so at once, the first one's stands."""
    partial = _partial(path, text)
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    finally:
        partial.unlink()


def _partial(path: Path, text: str) -> Path:
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    mode = 0o644 if path.parent.name == "release" else 0o600
    with open(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return partial
