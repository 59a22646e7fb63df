"""Runs private inference in memory, with a ledger that is thrown away, and keeps results that a script can go on from.

The records of the reproduction protect nobody, so what is private in a real run, such as realised costs, is shown here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpassay.accounting import ApproxDP, calibrate, ex_post, upper_bounds
from dpassay.accounting.ledger.entries import PartCost
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.base.atomic_file import replacing
from dpassay.data.records import Record
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.transcripts import Document, Generation, Observer

if TYPE_CHECKING:
    from dpassay.mechanisms.models.language_model import LanguageModel

RESULTS = Path(__file__).parent / "results"
CLIP, TEMPERATURE = 10.0, 1.2


@dataclass(frozen=True)
class Written:
    """What a run wrote, and what it cost.

    Attributes:
        mechanism: its public description.
        generation: all that it gave.
        realised: the realised cost of each part of the data; empty but for medians.
        seconds: wall time of the generation.
    """

    mechanism: PrivateInference
    generation: Generation
    realised: Mapping[str, PartCost]
    seconds: float

    @property
    def documents(self) -> list[Document]:
        """The complete ones; by the public rule only they are released."""
        return [document for document in self.generation.documents if document.complete]

    @property
    def ex_post_epsilon(self) -> float:
        """The ex-post ε of a median run, noisy counts included."""
        bound = ex_post.of_run(self.realised, self.mechanism.plan(), adjacency=self.mechanism.adjacency)
        return bound.value


def delta_of(records: int) -> float:
    """δ = n^(−1.1)."""
    return float(records**-1.1)


def planned_epsilon(mechanism: PrivateInference) -> float:
    """The smallest certified ε of the plan at `delta_of` of its records; a median's is its a-priori worst case."""
    claim = ApproxDP(1.0, delta_of(mechanism.records))
    return upper_bounds(mechanism.plan(), claim, adjacency=mechanism.adjacency)[0].value


def most_tokens(describe: Callable[[int], PrivateInference], epsilon: float) -> int:
    """The largest number of tokens of a slot whose plan is within (ε, `delta_of`)."""
    one = describe(1)
    found = calibrate(
        lambda tokens: describe(int(tokens)).plan(),
        ApproxDP(epsilon, delta_of(one.records)),
        adjacency=one.adjacency,
        decreasing=False,
        integer=True,
        bracket=(1, 4096),
    )
    return int(found.value)


def public_key(seed: int) -> bytes:
    """A key of the batching for made-up data: 32 bytes that follow from the seed."""
    return hashlib.sha256(f"reproduction {seed}".encode()).digest()


def write(
    mechanism: PrivateInference,
    records: Sequence[Record],
    model: LanguageModel,
    *,
    seed: int,
    observers: Sequence[Observer] = (),
) -> Written:
    """Generates with a ledger in a temporary folder; tokens and noise are drawn with the system's entropy.

    Args:
        mechanism: what is run.
        records: private ones.
        model: that writes.
        seed: of the batching's key only.
        observers: see every token.
    """
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.sqlite") as ledger:
        run = ledger.begin("run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={})
        start = time.perf_counter()
        generation = generate(mechanism, records, model, run, key=public_key(seed), observers=observers)
        seconds = time.perf_counter() - start
        run.finish()
        realised = run.realised() if mechanism.aggregate == "median" else {}
    return Written(mechanism, generation, realised, seconds)


class Results:
    """A JSON file of finished runs, one object each, and of `tables`, by name, which the script makes from them.

    A run is known by its ``setting`` and ``seed``; what is known is not run again, so an interrupted script goes on.
    """

    def __init__(self, path: Path, parameters: Mapping[str, Any]) -> None:
        """Reads the file if it is there.

        Raises:
            ValueError: where it is of other parameters.
        """
        self.path, self.parameters = path, dict(parameters)
        self.runs: list[dict[str, Any]] = []
        self.tables: dict[str, Any] = {}
        if path.is_file():
            known = json.loads(path.read_text(encoding="utf-8"))
            if known["parameters"] != json.loads(json.dumps(self.parameters)):
                raise ValueError(f"{path} is of other parameters; remove it or name another folder with --results")
            self.runs, self.tables = known["runs"], known["tables"]

    def missing(self, setting: str, seed: int) -> bool:
        """Whether that run has to be done."""
        found = any(run["setting"] == setting and run["seed"] == seed for run in self.runs)
        if not found:
            print(f"{time.strftime('%H:%M:%S')} {self.path.stem}: {setting}, seed {seed}", file=sys.stderr, flush=True)
        return not found

    def add(self, setting: str, seed: int, **found: Any) -> None:
        """Keeps a finished run, in the place of one of the same setting and seed."""
        self.runs = [run for run in self.runs if (run["setting"], run["seed"]) != (setting, seed)]
        self.runs.append({"setting": setting, "seed": seed, **found})
        self.save()

    def of(self, setting: str, name: str) -> list[Any]:
        """The values of all seeds of a setting, in the order of the seeds; None where a run lacks it."""
        runs = sorted((run for run in self.runs if run["setting"] == setting), key=lambda run: int(run["seed"]))
        return [run.get(name) for run in runs]

    def save(self) -> None:
        """Writes everything. A table is {columns: [{title, key, digits?}], rows: [{key: cell}]}; see `tables`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"parameters": self.parameters, "tables": self.tables, "runs": self.runs}
        with replacing(self.path, 0o644) as file:  # an interruption leaves the file as it was
            file.write((json.dumps(kept, indent=1, ensure_ascii=False) + "\n").encode())


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that all scripts have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds (3)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--quick", action="store_true", help="a little run that shows nothing but that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON (results/ beside the script)")
    return parser
