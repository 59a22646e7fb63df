"""Time and memory of what grows with the private records, apart from the language model.

    python benchmarks/many_records.py [--of votes secrets vectors] [--records 10000 100000 1000000] [--results FILE]

A file of records is made, and a process of its own reads it. Records have about 60 characters.

votes: hashes the records into the slots of private inference, 255 in each, reads the records of 2000 slots, computes
the digest that a resumed run compares, embeds the records as Aug-PE does, and counts their votes for 200 candidates.

secrets: a run of secret-protected evolution with 50 clusters, of which 2 rounds are selected. Every tenth record holds
a number that is a secret, and each number is in ten records.

vectors: the release of dataset vectors. In place of the hidden states of a record, which take most of the time and the
memory of one forward pass, whatever the number of records, is a vector that is made from its last token.

Printed are seconds of processor time, and the largest resident memory of that process. Pages of a mapped file of
vectors are not counted, because the operating system takes them back when it needs memory; with them, it is "MiB
resident".
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEY = bytes(32)
WORDS = [
    "account",
    "balance",
    "card",
    "charge",
    "debit",
    "fee",
    "interest",
    "limit",
    "loan",
    "payment",
    "refund",
    "tax",
]
SLOT = 255
HELD = 4 * 128  # bytes of a vector of the embedder that comes with dpassay
PRIVATE, TIMES = 10, 10  # every tenth record holds a secret, and each secret is in ten records


def make(path: Path, records: int, secrets: bool = False) -> None:
    """Writes made-up records, nearly all of them different, and no more than one at a time in memory."""
    numbers = max(1, records // (PRIVATE * TIMES))
    with path.open("w", encoding="utf-8") as file:
        for index in range(records):
            words = " ".join(WORDS[(index // 11**place) % 11] for place in range(6))
            text = f"Question {index % (records - records // 100)}: {words}."
            if secrets and index % PRIVATE == 0:
                text += f" ID {10**6 + index // PRIVATE % numbers}"
            file.write(json.dumps({"text": text}) + "\n")


class Laps:
    """Seconds of processor time from one mark to the next, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.process_time()

    def mark(self, name: str) -> None:
        now = time.process_time()
        self.seconds[name], self._last = round(now - self._last, 2), now


def votes(path: Path) -> dict[str, Any]:
    """What this process needs for the slots and the votes of the records of a file."""
    import numpy as np

    from dpassay.accounting.adjacency import Unit
    from dpassay.data.batching import hashed_slots, label_cells
    from dpassay.data.records import Texts, read_records
    from dpassay.mechanisms.embedding.embedder import HashedNgrams, all_embedded
    from dpassay.mechanisms.embedding.stored_vectors import embedded_records
    from dpassay.mechanisms.evolution.run import records_digest
    from dpassay.mechanisms.evolution.voting import record_votes

    laps = Laps()
    records = read_records(path)
    laps.mark("read")
    cells = label_cells(records, (), max(1, round(len(records) / SLOT)))
    batches = hashed_slots(records, cells, key=KEY, contexts=SLOT, records_per_context=1, unit=Unit())
    laps.mark("slots")
    seen, slots = 0, np.random.default_rng(0).permutation(len(batches.contexts))[:2000]
    for slot in slots.tolist():
        seen += sum(len(records[index].text) > 0 for context in batches.contexts[slot] for index in context)
    laps.mark("2000 slots")
    records_digest(records)
    laps.mark("digest")
    embedder = HashedNgrams()
    vectors = embedded_records(embedder, Texts(records), len(records))
    laps.mark("embed")
    found = record_votes(vectors, all_embedded(embedder, [records[index].text for index in range(200)]))
    laps.mark("vote")
    assert found.sum() == len(records) == batches.units.sum()
    return {"records": len(records), **laps.seconds}


class Writer:
    """Writes a few words for each seed."""

    name = fingerprint = "words"

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        return (f"Question {seed % 97}: {WORDS[seed % 12]} {WORDS[seed % 11]}." for seed in seeds)

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        return (f"{text} {WORDS[seed % 12]}" for text, seed in zip(texts, seeds, strict=True))


def secrets(path: Path) -> dict[str, Any]:
    """What this process needs for a run of secret-protected evolution."""
    from dpassay.accounting.ledger.ledger import Ledger
    from dpassay.data.records import read_records
    from dpassay.mechanisms.primitives.randomness import Recorded
    from dpassay.mechanisms.secret_evolution.detection import PatternSecrets
    from dpassay.mechanisms.secret_evolution.generator import SecretEvolution

    laps = Laps()

    class Watched(Recorded):
        """Marks when private records are first drawn."""

        def bernoulli(self, probabilities: Any) -> Any:
            if "embed, cluster" not in laps.seconds:
                laps.mark("embed, cluster")
            return super().bernoulli(probabilities)

    mechanism = SecretEvolution(
        secrets=(PatternSecrets(r"\bID \d+"),), p=1e-4, r=1e-2, rounds=2, synthetic=20, variations=2, clusters=50
    )
    records = read_records(path)
    laps.mark("read")
    incidence = mechanism.incidence(records)
    laps.mark("find secrets")
    plan = mechanism.plan(incidence)
    laps.mark("noise")
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder, "ledger.sqlite")) as ledger:
        about = {"noise": "recorded"}
        run = ledger.begin("run", plan=plan, adjacency=mechanism.adjacency, unit=mechanism.unit, about=about)
        journal = Path(folder, "journal.jsonl")
        mechanism.generate(records, Writer(), run, journal=journal, incidence=incidence, source=Watched(0))
    laps.mark("releases")
    return {"records": len(records), "secrets": incidence.secrets, **laps.seconds}


def vectors(path: Path) -> dict[str, Any]:
    """What this process needs for a release of dataset vectors, with cheap stand-ins for hidden states."""
    import numpy as np

    from dpassay.accounting.ledger.ledger import Ledger
    from dpassay.data.records import read_records
    from dpassay.mechanisms.dataset_vectors import differences
    from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors
    from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
    from dpassay.mechanisms.evolution.journal import Journal
    from dpassay.mechanisms.models.language_model import LanguageModel
    from dpassay.mechanisms.primitives.randomness import Recorded

    writer = ShotWriter(model=LanguageModel.load("builtin", "cpu"), longest=8, longest_record=40)
    width = int(writer.model.network.config.hidden_size)

    def made_up(network: Any, texts: Iterable[Any], chosen: Sequence[int], shape: Any) -> Iterator[Any]:
        for tokens, _ in texts:
            state = np.zeros((len(chosen), width))
            state[:, tokens[-1] % width] = 1.0
            yield state

    vars(differences)["states"] = made_up
    laps = Laps()
    records = read_records(path)
    laps.mark("read")
    mechanism = DatasetVectors(
        noise_multiplier=1.0, shots_noise_multiplier=1.0, records=len(records), candidates=4, shots=1, negatives=4
    )
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder, "ledger.sqlite")) as ledger:
        about = {"noise": "recorded"}
        run = ledger.begin(
            "run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about=about
        )
        with Journal(Path(folder, "journal.jsonl"), {}) as journal:
            mechanism.release(records, writer, run, journal=journal, source=Recorded(0))
    laps.mark("release")
    return {"records": len(records), **laps.seconds}


@dataclass(frozen=True)
class Measured:
    """What is measured: its name in the figure, and the times of its table."""

    run: Callable[[Path], dict[str, Any]]
    shown: str
    times: tuple[str, ...]


OF = {
    "votes": Measured(votes, "private inference, Aug-PE", ("read", "slots", "2000 slots", "digest", "embed", "vote")),
    "secrets": Measured(
        secrets, "secret-protected evolution", ("read", "find secrets", "noise", "embed, cluster", "releases")
    ),
    "vectors": Measured(vectors, "dataset vectors", ("read", "release")),
}
"""What is measured, by the name of its rows."""


def watched(command: Sequence[str]) -> dict[str, Any]:
    """What a process prints, with its largest resident memory, which is looked at 50 times a second."""
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            with contextlib.suppress(OSError, KeyError):
                peak = max(peak, resident(process.pid)["RssAnon"])
            time.sleep(0.02)
        assert process.stdout is not None
        printed: dict[str, Any] = json.loads(process.stdout.read())
    return {**printed, "MiB": (peak + printed.pop("libraries")) // 1024}


def resident(pid: int | str = "self") -> dict[str, int]:
    """The kinds of resident memory of a process, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}


def main() -> None:
    """Measures each number of records in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", nargs="+", choices=OF, default=list(OF), help="what is measured; all by default")
    parser.add_argument("--records", nargs="+", type=int, default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--results", type=Path, metavar="FILE", help="where rows are kept, as JSON")
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.file:
        results = OF[given.of[0]].run(given.file)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({**results, "MiB resident": most, "libraries": resident()["RssFile"]}))
        return
    kept = given.results and given.results.is_file()
    rows: dict[str, list[dict[str, Any]]] = (
        json.loads(given.results.read_text(encoding="utf-8"))["rows"] if kept else {}
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in given.of:
            for records in given.records:
                path = Path(folder, "records.jsonl")
                make(path, records, secrets=name == "secrets")
                row = watched([sys.executable, __file__, "--of", name, "--file", str(path)])
                print(name, json.dumps(row), flush=True)
                others = [item for item in rows.get(name, []) if item["records"] != records]
                rows[name] = sorted([*others, row], key=lambda item: int(item["records"]))
                if given.results:
                    body = {"rows": rows, "tables": {name: table(rows[name], OF[name].times) for name in rows}}
                    given.results.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def exponent(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    """The exponent of the records in which a time grows from the last but one row to the last."""
    before, last = rows[-2:]
    if not (before[name] and last[name]):
        return None
    return math.log(last[name] / before[name]) / math.log(last["records"] / before["records"])


def table(rows: Sequence[dict[str, Any]], times: Sequence[str]) -> dict[str, Any]:
    """A table of the guide: times and memory, and the exponents of the last step."""
    columns = [{"title": "records", "key": "records"}, *({"title": f"{name}, s", "key": name} for name in times)]
    columns.append({"title": "peak memory, MiB", "key": "MiB"})
    shown = [{**{name: f"{row[name]:g}" for name in (*times, "MiB")}, "records": f"{row['records']:,}"} for row in rows]
    if len(rows) > 1:
        last = {name: exponent(rows, name) for name in times}
        found = {name: f"{value:.2f}" for name, value in last.items() if value is not None}
        shown.append({**found, "records": "exponent of the last step"})
    return {"columns": columns, "rows": shown}


def figure(results: Mapping[str, Any]) -> str:
    """Peak memory against the number of records, as SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    style: Any = {"svg.hashsalt": "records", "svg.fonttype": "none", "font.size": 10, "font.family": "sans-serif"}
    with matplotlib.rc_context(style):
        drawn, axes = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
        for marker, (name, rows) in zip("os^", results["rows"].items(), strict=False):
            counts, memory = [row["records"] for row in rows], [row["MiB"] for row in rows]
            axes.loglog(counts, memory, marker=marker, label=OF[name].shown)
        every = sorted({row["records"] for rows in results["rows"].values() for row in rows})
        held = [max(1.0, HELD * count / 2**20) for count in every]
        axes.loglog(every, held, "--", color="grey", label="vectors alone, if memory held them")
        axes.set(xlabel="records", ylabel="MiB", title="peak memory", ylim=(10, None))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
        buffer = io.StringIO()
        drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(drawn)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
