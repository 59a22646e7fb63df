"""Valid inputs of every command: small files that are made once, and command lines over them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TINY = "{aggregate: median, clip: 10.0, temperature: 1.2, batch_size: 4, tokens: 2}"
MEAN = "{aggregate: mean, clip: 10.0, temperature: 1.2, batch_size: 4, tokens: 2, anchor: true, prefix: 'A note: '}"
CLUSTERED = (
    TINY[:-1] + ", center: public, top_k: 5, centres: centres.safetensors, kept_centres: 2, cluster_count_epsilon: 0.5}"
)
EVOLUTION = "rounds: 1, synthetic: 1, variations: 1, writing: {max_tokens: 2}"
ROWS = "data: {source: file, path: notes.jsonl, text: text}"

CLAIMS = {
    "median": f"{ROWS}\nunit: record\nmechanism: private_inference\nparameters: {TINY}\nmodel: model\n"
    "public: {records: 8, labels: [], context_tokens: 24}\nguarantee: {type: pure_dp, epsilon: 100000.0}\n"
    "audits: []\n",
    "mean": "data: {source: file, path: notes.csv, text: text, label: topic, id: key, user: who}\nunit: user\n"
    f"adjacency: replace_one\nmechanism: private_inference\nvariant: sound\nparameters: {MEAN}\nmodel: model\n"
    "public: {records: 8, labels: [a, b], context_tokens: {a: 32, b: 33}}\n"
    "guarantee: {type: approx_dp, epsilon: 5.0, delta: n^-1.1}\n",
    "clusters": f"data: {{source: file, path: notes.parquet}}\nmechanism: private_inference\nparameters: {CLUSTERED}\n"
    "model: model\npublic: {records: 8}\nguarantee: {type: ex_post, epsilon: 10.0}\n",
    "secrets": f"{ROWS}\nunit: secret\nadjacency: secret\nmechanism: secret_evolution\nparameters:\n"
    "  secrets:\n    - {list: secrets.csv}\n    - {pattern: '\\bX\\d+', each: match, p: 0.01, r: 0.2}\n"
    f"  p: 0.001\n  r: 0.05\n  seed: 1\n  clusters: 2\n  examples: 1\n  {EVOLUTION.replace(', ', chr(10) + '  ', 3)}\n"
    "model: model\npublic: {records: 8}\nguarantee: {type: secret_protection, p: 0.001, r: 0.05}\n",
    "votes": f"data: {{source: builtin, name: notes}}\nmechanism: aug_pe\nparameters: {{noise_multiplier: 7.0, "
    f"{EVOLUTION}}}\nmodel: model\npublic: {{records: 8}}\nguarantee: {{type: gdp, mu: 3.0}}\n",
    "marginals": "data: {source: table, path: seen.csv}\nmechanism: marginals\nparameters: {rho: 0.5, method: mst, "
    "bins: 8, degree: 2, rounds: 3, rows: 4}\npublic: {records: 8, columns: columns.yaml}\n"
    "guarantee: {type: approx_dp, epsilon: 5.0, delta: 1.0e-5}\n",
    "rows": "data: {source: table, path: seen.csv}\nmechanism: table_evolution\nparameters: {noise_multiplier: 3.0, "
    "rows: 4, rounds: 2, levels: 8, generations: 3}\npublic: {records: 8, columns: columns.yaml}\n"
    "guarantee: {type: gdp, mu: 3.0}\n",
    "endpoint": "data: {source: builtin, name: notes}\nmechanism: aug_pe\nparameters: {noise_multiplier: 7.0, rounds: 1"
    ", synthetic: 1, variations: 1, endpoint: {url: 'http://127.0.0.1:9/v1', model: none, tries: 1, timeout: 1.0, "
    "api_key_env: PATH}}\npublic: {records: 8}\nguarantee: {type: zcdp, rho: 0.5}\n",
    "elsewhere": "mechanism: declared\nadjacency: add_remove\nparameters:\n  events:\n"
    "    - {name: training, file: state.json, sampler: poisson}\n"
    "    - {dp_sgd: {noise_multiplier: 1.0, sample_rate: 0.1, steps: 20}, sampler: unknown, count: 2}\n"
    "    - {event: {class_name: LaplaceDpEvent, noise_multiplier: 10.0}}\n    - {ledger: ledger.sqlite}\n"
    "guarantee: {type: approx_dp, epsilon: 3.0, delta: 1.0e-5}\n",
}


COLUMNS = """made_from: public
columns:
  - {name: age, type: number, low: 0, high: 120}
  - {name: city, type: category, values: [Ulm, Bonn, Kiel], missing: true}
  - {name: plan, type: category, values: ['x', 'y']}
  - {name: spent, type: number, low: 0, high: 99.5, decimals: 1}
"""


@dataclass(frozen=True)
class Command:
    """A command line that works.

    Attributes:
        name: for summaries.
        arguments: of the command; a file is named by its path in the folder of the case.
        files: what it reads, files and folders of `make_inputs`; the first are mutated most.
        weight: how often it is drawn.
    """

    name: str
    arguments: Sequence[str]
    files: Sequence[str] = ()
    weight: float = 1.0


def _command(line: str, *files: str, weight: float = 1.0) -> Command:
    arguments = line.split()
    name = " ".join(arguments[: 2 if arguments[0] in ("audit", "compare", "calibrate", "table") else 1])
    return Command(name, arguments, files, weight)


_NOTES = ("notes.jsonl", "notes.csv", "notes.parquet", "model", "centres.safetensors", "secrets.csv")

COMMANDS = (
    _command("account median.yaml --delta 1e-5 --json", "median.yaml", weight=4),
    _command("account mean.yaml", "mean.yaml", weight=3),
    _command("account clusters.yaml --method pld --delta 1e-6", "clusters.yaml", "centres.safetensors", weight=2),
    _command("account secrets.yaml --json", "secrets.yaml", "secrets.csv", "notes.jsonl", weight=4),
    _command("account votes.yaml --delta 1e-5", "votes.yaml", weight=3),
    _command("account marginals.yaml --delta 1e-5 --json", "marginals.yaml", "columns.yaml", weight=2),
    _command("account ledger.sqlite --delta 1e-5", "ledger.sqlite", weight=3),
    _command("account ledger.sqlite median.yaml --delta 1e-5 --json", "ledger.sqlite", "median.yaml"),
    _command("account state.json --delta 1e-5 --sampler poisson --adjacency add_remove", "state.json", weight=3),
    _command("account checkpoint.pt event.json --delta 1e-5 --json", "checkpoint.pt", "event.json", weight=3),
    _command("account elsewhere.yaml", "elsewhere.yaml", "state.json", "ledger.sqlite", weight=3),
    _command("gate state.json ledger.sqlite --max-epsilon 3 --delta 1e-5 --sampler unknown", "state.json"),
    _command("assay elsewhere.yaml -o new", "elsewhere.yaml", "state.json", "ledger.sqlite", weight=2),
    _command("generate median.yaml -o new --device cpu", "median.yaml", *_NOTES, weight=2),
    _command("generate mean.yaml -o new --device cpu --json", "mean.yaml", *_NOTES, weight=2),
    _command("generate clusters.yaml -o new --device cpu -q", "clusters.yaml", *_NOTES, weight=2),
    _command("generate secrets.yaml -o new --device cpu -q", "secrets.yaml", *_NOTES),
    _command("generate votes.yaml -o new --device cpu -q", "votes.yaml", "model"),
    _command("generate endpoint.yaml -o new -q", "endpoint.yaml", weight=3),
    _command("assay median.yaml -o new --device cpu", "median.yaml", *_NOTES, weight=0.5),
    _command("release run -o out", "run"),
    _command("accountants --adjacency zero_out", weight=0.3),
    _command("schema claim", weight=0.2),
    _command("compare dp-sgd --noise-multiplier 4 --sampling-probability .1 --steps 3 --delta 1e-5 --method rdp"),
    _command("compare dp-sgd --noise-multiplier 4 --sampling-probability .1 --steps 3 --delta 1e-5", weight=2),
    _command("compare gaussian --noise-multiplier 5 --count 2 --delta 1e-5 --adjacency replace_one --json", weight=2),
    _command("compare selection --clip 9 --temperature 1.5 --batch-size 64 --count 3 --delta 1e-5"),
    _command("compare selection --eta .2 --count 3 --delta 1e-5", weight=2),
    _command("compare secret --occurrences 8 --sampling-probability .1 --sigma 2 --p 1e-3 --rounds 2", weight=2),
    _command("compare secret --weights .5,.3,.2 --sigma 2 --p 1e-3"),
    _command("compare vectors --layers 2 --clip 1 --records 100 --epsilon 5 --delta 1e-5", weight=2),
    _command("compare vectors --layers 2 --clip 1 --records 100 --sigma 5 --delta 1e-5"),
    _command("compare ledger ledger.sqlite --delta 1e-5", "ledger.sqlite"),
    _command("calibrate dp-sgd --target-epsilon 5 --delta 1e-3 --sampling-probability .1 --steps 2 --method rdp"),
    _command("calibrate dp-sgd --find steps --target-epsilon 5 --delta 1e-3 --sampling-probability .1 "
             "--noise-multiplier 3 --method rdp"),
    _command("calibrate dp-sgd --target-epsilon 5 --delta 1e-3 --sampling-probability .1 --steps 2"),
    _command("calibrate gaussian --target-epsilon 5 --delta 1e-3 --count 2"),
    _command("calibrate gaussian --target-mu 1 --find count --noise-multiplier 4 --json"),
    _command("calibrate gaussian --target-beta .5 --alpha .1 --count 2"),
    _command("calibrate selection --target-epsilon 3 --delta 1e-5 --temperature 1.5 --batch-size 64 --count 2"),
    _command("calibrate secret --target-r .01 --p 1e-3 --occurrences 8 --sampling-probability .1 --rounds 2"),
    _command("calibrate secret --target-r .01 --p 1e-3 --weights .9,.1 --sigma 1 --find rounds"),
    _command("calibrate claim votes.yaml --target-epsilon 5 --vary rounds=1,2 --no-time", "votes.yaml", weight=2),
    _command("calibrate claim mean.yaml --target-epsilon 1e5 --vary batch_size=4 --no-time --json", "mean.yaml"),
    _command("centres notes.jsonl -o made.safetensors --count 2", "notes.jsonl", weight=2),
    _command("utility synthetic.jsonl --real notes.jsonl --held-out unseen.jsonl -o u.json",
             "notes.jsonl", "synthetic.jsonl", "unseen.jsonl"),
    _command("utility synthetic.jsonl --real notes.csv --label topic --synthetic-label topic -o u.json --limit 50",
             "notes.csv", "synthetic.jsonl"),
    _command("table utility table.csv --real seen.csv --held-out unseen.csv --schema columns.yaml -o u.json",
             "seen.csv", "columns.yaml", "table.csv", "unseen.csv", weight=2),
    _command("table schema seen.csv -o made.yaml --public --ignore city", "seen.csv"),
    _command("table utility table.csv --real seen.parquet --schema columns.yaml --json", "seen.parquet", "table.csv",
             "columns.yaml"),
    _command("audit text synthetic.jsonl --source notes.jsonl --holdout unseen.jsonl --coins -o a.json --words 2",
             "notes.jsonl", "synthetic.jsonl", "unseen.jsonl", weight=2),
    _command("audit text synthetic.jsonl --source notes.csv --holdout unseen.jsonl --json", "notes.csv",
             "synthetic.jsonl", "unseen.jsonl"),
    _command("audit table table.csv --source seen.csv --holdout unseen.csv --secret plan --coins -o a.json",
             "table.csv", "seen.csv", "unseen.csv", weight=2),
    _command("audit table table.csv --source seen.parquet --holdout unseen.csv --ignore id -o a.json",
             "seen.parquet", "table.csv", "unseen.csv", weight=2),
    _command("audit plan --kind key --like notes.jsonl --canaries 20 --epsilon 3 --delta 1e-5 -o plan",
             "notes.jsonl", weight=2),
    _command("audit plan --kind echo --like notes.csv --canaries 20 --user who --unit user --copies 2 -o plan",
             "notes.csv", weight=2),
    _command("audit plan --kind table --like seen.parquet --canaries 20 --id id -o plan", "seen.parquet", weight=2),
    _command("audit plan --kind table --like seen.csv --canaries 20 --id id -o plan", "seen.csv", weight=2),
    _command("audit score planned copied.jsonl", "planned", "copied.jsonl", weight=2),
    _command("audit bound scored", "scored", weight=2),
    _command("audit report bounded", "bounded", weight=2),
    _command("audit runs plan --like seen.csv --epsilon 1 --runs 20 --neighbors ordinary -o plan", "seen.csv"),
    _command("audit runs score asked", "asked"),
    _command("audit runs bound ran", "ran", weight=2),
    _command("audit runs report shown", "shown"),
    _command("audit membership scores scores.csv --coins --delta 1e-3 --epsilon 1 -o m.json", "scores.csv", weight=2),
    _command("audit membership scores scores.jsonl --attack rmia-offline --a .3 --guesses 4 -o m.json", "scores.jsonl",
             weight=2),
    _command("audit membership text candidates.jsonl --synthetic synthetic.jsonl --reference unseen.jsonl "
             "--coins -o m.json", "candidates.jsonl", "synthetic.jsonl", "unseen.jsonl"),
    _command("audit secrets --p .01 --r .3 --occurrences 8 --sampling-probability .1 --sigma 4", weight=0.3),
    _command("audit secrets --p .01 --r .3 --occurrences 8 --sampling-probability .1 --rounds 2 -o games", weight=0.3),
)  # fmt: skip


def make_inputs(folder: Path) -> None:
    """Writes all files that the commands of `COMMANDS` read.

    Args:
        folder: empty.
    """
    import torch
    from command import run
    from dp_accounting import dp_event
    from small_models import save_model

    notes: list[dict[str, Any]] = [
        {"text": f"note {i} of X{i // 2} on {('rain', 'sun')[i % 2]}", "topic": "ab"[i % 2], "key": i, "who": f"u{i}"}
        for i in range(8)
    ]
    unseen = [{"text": f"letter {i} of {('snow', 'wind')[i % 2]} and more", "topic": "ab"[i % 2]} for i in range(8)]
    _jsonl(folder / "notes.jsonl", notes)
    _jsonl(folder / "unseen.jsonl", unseen)
    _jsonl(folder / "synthetic.jsonl", [{"text": f"note {i} of rain", "topic": "ab"[i % 2]} for i in range(8)])
    _csv(folder / "notes.csv", notes)
    rows = [
        {"id": i, "age": 20 + 3 * i, "city": ("Ulm", "Bonn", "Kiel")[i % 3], "plan": "xy"[i % 2], "spent": i * 1.5}
        for i in range(24)
    ]
    _csv(folder / "seen.csv", rows[:8])
    _csv(folder / "unseen.csv", rows[8:16])
    _csv(folder / "table.csv", rows[16:])
    _parquet(folder / "notes.parquet", notes)
    _parquet(folder / "seen.parquet", rows[:8])
    (folder / "columns.yaml").write_text(COLUMNS)
    state = {"history": [[1.0, 0.1, 20], [2.0, 0.1, 5]], "mechanism": "rdp"}
    (folder / "state.json").write_text(json.dumps(state))
    torch.save({"epoch": 3, "privacy_accountant_state_dict": state}, folder / "checkpoint.pt")
    event = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0)), 5)
    (folder / "event.json").write_text(json.dumps(event.to_named_tuple()))
    scores: list[dict[str, Any]] = [
        {"target": (i % 5) / 2, "included": i % 2, **{f"ref_{j}": (i * j % 7) / 3 for j in (1, 2)}} for i in range(16)
    ]
    _csv(folder / "scores.csv", scores)
    _jsonl(folder / "scores.jsonl", scores + [{"target": 0.5 * i, "included": None, "ref_1": 1.0, "ref_2": 2.0}
                                              for i in range(4)])  # fmt: skip
    _jsonl(folder / "candidates.jsonl", [{"text": row["text"], "included": row["key"] % 2} for row in notes])
    (folder / "secrets.csv").write_text("secret,p,r\nrain,0.01,0.2\nsun,,\n")
    save_model(folder / "model")
    for name, body in CLAIMS.items():
        (folder / f"{name}.yaml").write_text(f"name: {name}\n{body}")

    def works(line: str) -> None:
        done = run(*[folder / word if "." in word and "/" in word else word for word in line.split()])
        if done.returncode not in (0, 4):  # audits of so little conclude nothing
            raise RuntimeError(f"the inputs of the fuzzer cannot be made: {line}: {done.stderr}")

    from whole_documents import every_document_ends

    works("centres ./notes.jsonl -o ./centres.safetensors --count 2 -q")
    with every_document_ends():  # so that the run can be released
        works("assay ./median.yaml -o ./run --device cpu -q")
    shutil.copy(folder / "run" / "private" / "ledger.sqlite", folder / "ledger.sqlite")
    works("audit plan --kind key --like ./notes.jsonl --canaries 20 --epsilon 3 -o ./planned -q")
    planted = next((folder / "planned").glob("**/canaries*.jsonl")).read_text()
    (folder / "copied.jsonl").write_text(planted + (folder / "notes.jsonl").read_text())
    shutil.copytree(folder / "planned", folder / "scored")
    works("audit score ./scored ./copied.jsonl -q")
    shutil.copytree(folder / "scored", folder / "bounded")
    works("audit bound ./bounded -q")
    works("audit runs plan --like ./seen.csv --epsilon 5 --runs 20 --neighbors ordinary -o ./asked -q")
    shutil.copytree(folder / "asked", folder / "ran")
    done = run("audit", "runs", "run", folder / "ran", "--command", "cp {input} {output}", "-q")
    if done.returncode:
        raise RuntimeError(f"the inputs of the fuzzer cannot be made: {done.stderr}")
    shutil.copytree(folder / "ran", folder / "shown")
    works("audit runs bound ./shown -q")


def _jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n")


def _parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
