"""Every example is read, planned and run as it is; the large ones with small models of their shape."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from command import run
from sentence_models import save_sentence_model
from small_models import save_model

from dpassay.accounting import ApproxDP, SecretProtection, Unit, upper_bounds
from dpassay.accounting.guarantees import ExPostDP, PureDP
from dpassay.base.errors import InputError
from dpassay.claims.base import Claim
from dpassay.data.records import read_records
from dpassay.generators.registry import read_claim
from dpassay.jobs.account import account as account_files
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.mechanisms.private_inference.generator import PrivateInference

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
OTHERS = {"generators", "manifests"}  # folders of a schema, and of manifests, which are no claims
FILES = sorted(
    path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/*.yaml") if path.parent.name not in OTHERS
)
FALSE = {
    "claims/keys-mean-understated.yaml",
    "claims/keys-unprotected.yaml",
    "claims/notes-vectors-as-published.yaml",
}
LARGE = [name for name in FILES if name.startswith("ag-news/")]
README = (EXAMPLES / "README.md").read_text()
SHAPES = {"gemma": "gemma2", "llama": "llama"}


def planned(claim: Claim) -> float:
    """The least certified ε of the plan, in the currency of the claim."""
    event, unit = claim.plan().event, Unit.parse(claim.unit)
    bounds = upper_bounds(event, claim.claimed(), adjacency=claim.adjacency, unit=unit)
    return min((bound.value for bound in bounds), default=math.inf)


def upward(value: float) -> str:
    """To two decimals, never less than it is."""
    return "inf" if math.isinf(value) else f"{math.ceil(value * 100) / 100:.2f}"


@pytest.mark.grid
@pytest.mark.parametrize("name", FILES)
def test_the_plan_is_what_the_file_and_the_table_say(name: str) -> None:
    claim = read_claim(EXAMPLES / name)
    row = re.search(rf"\[{re.escape(name)}\]\({re.escape(name)}\) \|.*\| (.+) \| (\S+) \|", README)
    assert row is not None
    guarantee, cost = claim.claimed(), planned(claim)
    assert row[2] == upward(cost)
    if isinstance(guarantee, SecretProtection):
        assert row[1] == f"r = {guarantee.r:g} at p = {guarantee.p:g}"
        assert cost <= guarantee.r
        return
    assert isinstance(guarantee, PureDP | ApproxDP | ExPostDP)
    assert row[1].endswith(f"ε = {guarantee.epsilon:g}")
    if name in FALSE:
        assert cost > guarantee.epsilon
    elif isinstance(guarantee, ApproxDP):
        assert cost <= guarantee.epsilon
        if not name.startswith("claims/"):  # and no more is claimed than it has to be
            assert cost > guarantee.epsilon - 0.1
    else:  # ex post: every token at its worst, and the counts, before the run
        values = claim.parameters
        worst = values.tokens * 4 * values.clip / values.temperature
        worst += values.cluster_count_epsilon if values.centres else 0.0
        assert cost == pytest.approx(worst, abs=1e-6)  # the sampler's rounding, below 1e-9 a token


@pytest.mark.parametrize(
    ("name", "changes"),
    [("ag-news/gemma-2-2b-mean.yaml", {"batch_size": 64}), ("ag-news/llama-3.1-8b-mean.yaml", {})],
)
def test_what_the_published_setting_costs_is_what_the_comment_says(name: str, changes: dict[str, int]) -> None:
    claim = read_claim(EXAMPLES / name)
    published = claim.model_copy(update={"parameters": claim.parameters.model_copy(update=changes)})
    said = re.search(r"ε = (\d+\.\d\d) where", (EXAMPLES / name).read_text().replace("\n# ", " "))
    assert said is not None
    assert said[1] == upward(planned(published))


@pytest.mark.parametrize("name", LARGE)
def test_large_examples_have_the_published_parameters(name: str) -> None:
    values = read_claim(EXAMPLES / name).parameters
    median = "median" in name
    assert (values.records_per_context, values.temperature, values.clip) == (2, 1.5, 6.0 if median else 9.0)
    assert (values.tokens, values.batch_size) in ((367, 64), (367, 128), (689, 256))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("temperature: 1.5", "temperature: 0.4"), "at most 40"),
        (("kept_centres: 60", "kept_centres: 118"), "at most 117"),
    ],
)
def test_values_out_of_range_are_refused(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    text = (EXAMPLES / "ag-news/gemma-2-2b-mean.yaml").read_text()
    assert change[0] in text
    (tmp_path / "claim.yaml").write_text(text.replace(*change))
    with pytest.raises(InputError, match=says):
        read_claim(tmp_path / "claim.yaml")


def test_the_readmes_links_and_the_command_it_names() -> None:
    """`dpassay account` on a claim prints the number that the table shows."""
    assert "`dpassay account FILE`" in README
    path = EXAMPLES / "own-data/messages-mean.yaml"
    result = account_files([path], delta=None, method=None)
    assert min(bound.value for bound in result.bounds) == planned(read_claim(path))
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert all((EXAMPLES / link).is_file() for link in links)
    listed = [link for link in links if not link.startswith("../")]
    guides = [path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/README.md")]
    notebooks = [path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("notebooks/*.ipynb")]
    assert sorted(listed) == sorted(FILES + guides + notebooks)


@pytest.mark.slow
def test_scripts_make_the_files_beside_them(tmp_path: Path) -> None:
    for script in ("own-data/make_messages.py", "clustered/make_centres.py"):
        shutil.copy(EXAMPLES / script, tmp_path)
        environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "benchmarks")}
        subprocess.run([sys.executable, str(tmp_path / Path(script).name)], check=True, env=environment)
    assert (tmp_path / "messages.jsonl").read_bytes() == (EXAMPLES / "own-data/messages.jsonl").read_bytes()
    # K-means sums floats, in an order that is the machine's: the embedder and the shape are the same in any case.
    made, kept = (Centres.load(folder / "centres.safetensors") for folder in (tmp_path, EXAMPLES / "clustered"))
    assert made.embedder_fingerprint == kept.embedder_fingerprint
    assert made.vectors.shape == kept.vectors.shape == (24, 128)


def test_the_public_numbers_of_own_data_are_those_of_the_file() -> None:
    claim = read_claim(EXAMPLES / "own-data/messages-mean.yaml")
    data: Any = claim.data
    records = read_records(data.path, text=data.text, label=data.label, id=data.id, user=data.user)
    assert len({record.user for record in records}) == claim.public.records < len(records)
    assert {record.label for record in records} == set(claim.public.labels)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("clustered/notes-clustered.yaml", "own-data/messages-mean.yaml")
    ],
)
def test_small_examples_run_as_they_are(name: str, tmp_path: Path) -> None:
    done = run("generate", EXAMPLES / name, "-o", tmp_path, "--device", "cpu", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in (tmp_path / "private" / "synthetic.jsonl").read_text().splitlines()]
    claim = read_claim(EXAMPLES / name)
    labels: set[str | None] = {*claim.public.labels} or {None}
    assert {row["label"] for row in rows} <= labels
    assert rows
    counts = tmp_path / "private" / "cluster-counts.json"
    assert counts.exists() == (claim.parameters.centres is not None)
    if counts.exists():
        assert [len(row) for row in json.loads(counts.read_text())] == [24]


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models with random weights, centres, and news with the columns of AG News."""
    folder = tmp_path_factory.mktemp("stand-ins")
    for name, architecture in SHAPES.items():
        save_model(folder / name, architecture, positions=1024, bos_token="<bos>")
    save_sentence_model(folder / "sentences")
    kinds = datasets.ClassLabel(names=["World", "Sports", "Business", "Sci/Tech"])
    columns = datasets.Features({"text": datasets.Value("string"), "label": kinds})
    rows = {"text": [f"News number {i} of the day" for i in range(64)], "label": [i % 4 for i in range(64)]}
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows, features=columns)}).save_to_disk(folder / "news")
    public = [{"content": f"{['the', 'a', 'of'][i % 3]} {chr(97 + i % 26)} {i}"} for i in range(60)]
    (folder / "public.jsonl").write_text("".join(json.dumps(row) + "\n" for row in public))
    done = run(
        *("centres", folder / "public.jsonl", "--text", "content", "--count", 10, "--embedder", folder / "sentences"),
        *("-o", folder / "dbpedia-centres.safetensors", "-q"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.mark.grid
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if "gemma" in name else name for name in LARGE]
)
def test_large_examples_run_with_small_models_of_their_shape(name: str, stand_ins: Path, tmp_path: Path) -> None:
    """But for weights, data and embedder, and the numbers that are lowered here, the files are as they are."""
    body = yaml.safe_load((EXAMPLES / name).read_text())
    body["data"]["name"] = "news"
    body["public"]["records"] = 64
    body["parameters"] |= {"embedder": "sentences", "batch_size": 4, "tokens": 6, "kept_centres": 2}
    path = stand_ins / Path(name).name
    path.write_text(yaml.safe_dump(body))
    model = stand_ins / Path(name).name.partition("-")[0]
    done = run("generate", path, "--model", model, "-o", tmp_path, "--device", "cpu", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    counts = json.loads((tmp_path / "private" / "cluster-counts.json").read_text())
    assert [len(row) for row in counts] == [10] * 4
    cost = run("account", tmp_path / "private" / "ledger.sqlite", "--delta", "1e-5", "--json")
    assert (cost.returncode, cost.stderr) == (0, "")
    mechanism = read_claim(path).generator()
    assert isinstance(mechanism, PrivateInference)
    assert mechanism.total_slots == 8
