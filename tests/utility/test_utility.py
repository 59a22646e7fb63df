"""`dpassay utility` as a person meets it: where the numbers go, who may read them, one-line errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import command
import pytest

from dpassay.data.corpora import notes
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.utility import UtilitySettings, measure

DOCS = Path(__file__).resolve().parents[2] / "docs"
COLUMNS = ["--text", "note", "--label", "health"]


def dpassay(*arguments: object) -> command.Result:
    return command.run("utility", *arguments)


def write(path: Path, rows: Iterable[tuple[str, str | None]], text: str = "note", label: str = "health") -> Path:
    path.parent.mkdir(mode=0o700, exist_ok=True, parents=True)
    path.write_text("".join(json.dumps({text: first, label: second}) + "\n" for first, second in rows))
    return path


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals are tested where they are made."""
    monkeypatch.setattr("dpassay.utility.frechet.REPLICATES", 20)
    monkeypatch.setattr("dpassay.utility.frechet.HALVINGS", 4)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A run folder, real texts, and others that the run did not see; the same five texts are in the first two."""
    rows = notes(700, 0)
    return {
        "run": write(tmp_path / "run" / "private" / "synthetic.jsonl", rows[295:500], "text", "label").parents[1],
        "real": write(tmp_path / "real.jsonl", rows[:300]),
        "held_out": write(tmp_path / "held-out.jsonl", rows[500:]),
    }


def measured(*arguments: object) -> dict[str, Any]:
    result = dpassay(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    outcome: dict[str, Any] = json.loads(result.stdout)
    return outcome


def test_everything_is_measured_and_private(files: dict[str, Path]) -> None:
    result = measured(files["run"], "--real", files["real"], "--held-out", files["held_out"], *COLUMNS)
    path = files["run"] / "private" / "utility.json"
    assert json.loads(path.read_text()) == result
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(file.name for file in (files["run"] / "private").iterdir()) == ["synthetic.jsonl", "utility.json"]
    assert "computed from private data" in result["private"]
    assert [result[of]["texts"] for of in ("synthetic", "real", "held_out")] == [205, 300, 200]
    frechet = result["frechet"]
    assert frechet["dimensions"] == 128
    # The same law on both sides: what is found is what sampling makes of it.
    assert frechet["value"] == pytest.approx(frechet["sampling_alone"], rel=0.5)
    assert frechet["interval"][0] <= frechet["corrected"] <= frechet["interval"][1]
    assert len(result["diversity"]) == 4
    assert result["lengths"]["words"]["real"]["quantiles"]["0.5"] == 34
    classifier = result["classifier"]
    assert classifier["tested_on"] == "held_out"
    assert classifier["texts"] == {"synthetic": 205, "real_training": 300, "real_test": 200}
    assert result["mauve"] is None


def keys(value: Any) -> Any:
    """The keys of a JSON document in order, with the types of its leaves."""
    if isinstance(value, dict):
        return {key: keys(of) for key, of in value.items()}
    if isinstance(value, list):
        return [keys(of) for of in value]
    return type(value).__name__


OVERLAP = {
    "run_words": "int",
    "exact_share": "float",
    "near_share": "float",
    "near_from": "float",
    "mean_overlap": "float",
    "longest_stretch_words": {"0.5": "float", "0.95": "float", "1": "float"},
}
SCORES = {name: {"value": "float", "interval": ["float", "float"]} for name in ("accuracy", "macro_f1")}
FILE = {"path": "str", "texts": "int", "used": "int"}
LENGTH = {
    "mean": "float",
    "quantiles": dict.fromkeys(("0", "0.05", "0.25", "0.5", "0.75", "0.95", "1"), "float"),
}
LENGTHS = {"synthetic": LENGTH, "real": LENGTH, "wasserstein_1": "float", "kolmogorov_smirnov": "float"}
DISTINCT = {
    "n": "int",
    "runs": {"synthetic": "int", "real": "int"},
    "same_size": "int",
    "distinct": {"synthetic": "float", "real": "float"},
    "distinct_at_same_size": {"synthetic": "float", "real": "float"},
}
WRITTEN = {
    "schema": "int",
    "private": "str",
    "version": "str",
    "synthetic": FILE,
    "real": FILE,
    "held_out": FILE,
    "embedder": {"name": "str", "fingerprint": "str"},
    "seed": "int",
    "classifier": {
        "train_on_synthetic": SCORES,
        "train_on_real": SCORES,
        "majority_class": SCORES,
        "confidence": "float",
        "texts": {"synthetic": "int", "real_training": "int", "real_test": "int"},
        "labels": "int",
        "unknown_label_share": "float",
        "tested_on": "str",
    },
    "frechet": {
        "value": "float",
        "corrected": "float",
        "interval": ["float", "float"],
        "sampling_alone": "float",
        "confidence": "float",
        "dimensions": "int",
        "texts": {"synthetic": "int", "real": "int"},
    },
    "mauve": {"value": "float", "smoothed": "float", "buckets": "int", "scaling": "int"},
    "diversity": [DISTINCT] * 4,
    "lengths": {"words": LENGTHS, "characters": LENGTHS},
    "memorisation": {"real": OVERLAP, "same_size": {"texts": "int", "real": OVERLAP, "held_out": OVERLAP}},
}


def test_the_document_is_that_of_version_0_2(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys, their order and types; readers of `utility.json` rely on them."""
    mauve = SimpleNamespace(compute_mauve=lambda **_: SimpleNamespace(mauve=0.25, mauve_star=0.5))
    monkeypatch.setitem(sys.modules, "mauve", mauve)
    settings = UtilitySettings(
        real=files["real"], held_out=files["held_out"], text="note", label="health", mauve=True, limit=100
    )
    result = measure(files["run"], settings)
    assert json.dumps(keys(result.to_json())) == json.dumps(WRITTEN)
    bare = json.loads(json.dumps(measure(files["run"], UtilitySettings(real=files["real"], text="note")).to_json()))
    assert list(bare) == list(WRITTEN)
    assert [bare["classifier"], bare["mauve"], bare["held_out"], bare["memorisation"]["same_size"]] == [None] * 4
    assert "same_size" in bare["memorisation"]


CLUSTERED = """
name: clustered
data: {source: file, path: real.jsonl, text: note, label: health}
mechanism: private_inference
parameters:
  {aggregate: median, clip: 10.0, temperature: 1.0, batch_size: 10, tokens: 100, centres: centres.safetensors,
   kept_centres: 2}
public: {records: 120, labels: [excellent, good, fair, poor], context_tokens: 80}
"""


@pytest.mark.slow
def test_a_run_that_generate_wrote_is_measured(tmp_path: Path) -> None:
    """With labels and clusters, from records to numbers; the release stays as it was."""
    rows = notes(300, 0)
    real = write(tmp_path / "real.jsonl", rows[:120])
    (tmp_path / "claim.yaml").write_text(CLUSTERED)
    Centres.fit([text for text, _ in rows[120:]], 6).save(tmp_path / "centres.safetensors")
    run = tmp_path / "run"
    assert command.run("generate", tmp_path / "claim.yaml", "-o", run, "--device", "cpu", "-q").returncode == 0
    before = {path.name: path.read_bytes() for path in (run / "private").iterdir()}
    made = [json.loads(line) for line in before["synthetic.jsonl"].splitlines()]
    result = measured(run, "--real", real, *COLUMNS)
    assert result["synthetic"] == {
        "path": str(run / "private" / "synthetic.jsonl"),
        "texts": len(made),
        "used": len(made),
    }
    assert result["classifier"]["texts"]["synthetic"] == len(made)
    assert result["lengths"]["characters"]["synthetic"]["mean"] == pytest.approx(
        sum(len(row["text"]) for row in made) / len(made)
    )
    assert result["frechet"]["texts"] == {"synthetic": len(made), "real": 120}
    assert json.loads((run / "private" / "utility.json").read_text()) == result
    after = {path.name: path.read_bytes() for path in (run / "private").iterdir()}
    assert after.pop("utility.json")
    assert after == before


def test_overlap_counts_the_copies(tmp_path: Path) -> None:
    copied = ["a secret that nobody else would ever have written down anywhere"] * 2
    others = [f"a{i} b{i} c{i} d{i} e{i} f{i} g{i} h{i} i{i} j{i}" for i in range(60)]
    real = write(tmp_path / "real.jsonl", [(text, "x") for text in (*copied, *others[:20])])
    made = write(tmp_path / "made.jsonl", [(text, "x") for text in (*copied, *others[20:38])], "text")
    unseen = write(tmp_path / "unseen.jsonl", [(text, "x") for text in others[38:]])
    result = measured(made, "--real", real, "--held-out", unseen, "--text", "note")["memorisation"]
    assert result["real"]["exact_share"] == result["real"]["near_share"] == 2 / 20
    assert result["real"]["longest_stretch_words"]["1"] == 11
    assert result["same_size"]["texts"] == 22
    assert result["same_size"]["real"]["exact_share"] == 2 / 20
    assert result["same_size"]["held_out"]["exact_share"] == 0


def test_a_copy_among_texts_that_are_not_drawn_is_found(tmp_path: Path) -> None:
    texts = [(f"text number {i} of a file that is larger than the limit", "x") for i in range(90)]
    real = write(tmp_path / "real.jsonl", texts)
    made = write(tmp_path / "made.jsonl", [*texts[40:42], ("and another text", "x")], "text")
    result = measured(made, "--real", real, "--text", "note", "--limit", 5)
    assert result["real"] == {"path": str(real), "texts": 90, "used": 5}
    assert result["memorisation"]["real"]["exact_share"] == pytest.approx(2 / 3)


def test_the_table_says_that_it_is_private(files: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "elsewhere.json"
    result = dpassay(files["run"], "--real", files["real"], *COLUMNS, "-o", output)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("PRIVATE. Every number here is computed from private data")
    for words in ("Fréchet distance", "distinct-4", "trained on real", "longest stretch"):
        assert words in result.stdout
    assert output.is_file()
    assert [file.name for file in (files["run"] / "private").iterdir()] == ["synthetic.jsonl"]
    assert dpassay(files["run"], "--real", files["real"], "--text", "note", "-q").stdout == ""


def test_without_a_label_nothing_is_classified(files: dict[str, Path]) -> None:
    assert measured(files["run"], "--real", files["real"], "--text", "note")["classifier"] is None


def test_empty_synthetic_texts_are_measured_too(files: dict[str, Path], tmp_path: Path) -> None:
    made = write(tmp_path / "made.jsonl", [("", None), ("", None), ("one text", None)], "text")
    result = measured(made, "--real", files["real"], "--text", "note")
    assert result["lengths"]["words"]["synthetic"]["quantiles"]["0.5"] == 0
    assert result["memorisation"]["real"]["exact_share"] == 0


def test_the_same_seed_gives_the_same_numbers(files: dict[str, Path]) -> None:
    arguments = (files["run"], "--real", files["real"], *COLUMNS, "--limit", 100)
    assert measured(*arguments) == measured(*arguments)
    assert measured(*arguments) != measured(*arguments, "--seed", 1)


def test_mauve_is_imported_only_on_request(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The package cannot be imported: nobody notices, but for --mauve."""
    monkeypatch.setitem(sys.modules, "mauve", None)
    plain = (files["run"], "--real", files["real"], "--text", "note", "-q")
    assert dpassay(*plain).returncode == 0
    asked = dpassay(*plain, "--mauve")
    assert asked.returncode == 2
    assert asked.stderr.startswith("dpassay: mauve-text is not installed; MAUVE needs pip install '.[mauve]'")
    assert len(asked.stderr.splitlines()) == 1


def test_mauve_is_given_the_embeddings(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(**given: Any) -> SimpleNamespace:
        assert given["p_features"].shape == (300, 128)
        assert given["q_features"].shape == (205, 128)
        return SimpleNamespace(mauve=0.25, mauve_star=0.5)

    monkeypatch.setitem(sys.modules, "mauve", SimpleNamespace(compute_mauve=compute))
    result = measured(files["run"], "--real", files["real"], "--text", "note", "--mauve", "--mauve-buckets", 20)
    assert result["mauve"] == {"value": 0.25, "smoothed": 0.5, "buckets": 20, "scaling": 5}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--real", "missing.jsonl"], "missing.jsonl: there is no such file"),
        (["missing.jsonl", "--real", "real.jsonl"], "missing.jsonl"),
        (["nothing", "--real", "real.jsonl"], "holds neither private/synthetic.jsonl nor"),
        (["run", "--real", "real.jsonl"], "real.jsonl, line 1: there is no column 'text'"),
        (["run", "--real", "real.jsonl", "--text", "note", "--label", "kind"], "there is no column 'kind'"),
        (["unlabelled.jsonl", "--real", "real.jsonl", *COLUMNS], "unlabelled.jsonl, line 1: column 'label'"),
        (["run", "--real", "empty.jsonl", "--text", "note"], "empty.jsonl: holds no text"),
        (["empty.jsonl", "--real", "real.jsonl", "--text", "note"], "empty.jsonl: holds no text"),
        (["run", "--real", "single.jsonl", "--text", "note"], "single.jsonl: holds one text"),
        (["single.jsonl", "--real", "real.jsonl", "--text", "note", "--synthetic-text", "note"], "holds one text"),
        (["run", "--real", "real.jsonl", "--held-out", "single.jsonl", "--text", "note"], "single.jsonl: holds one"),
        (
            ["run", "--real", "latin.jsonl", "--text", "note"],
            "latin.jsonl, line 1: is not UTF-8 text; save it",
        ),
        (["run", "--real", "real.txt"], "its name ends in '.txt'"),
        (["run", "--real", "identified.jsonl", *COLUMNS], "at most 100 are compared"),
        (["out", "--real", "real.jsonl", *COLUMNS], "lies in a released folder"),
        (["run", "--real", "real.jsonl", *COLUMNS, "-o", "out/utility.json"], "lies in a released folder"),
        (
            ["run", "--real", "real.jsonl", *COLUMNS, "-o", "no/such/folder.json"],
            "name a file in an existing folder with -o",
        ),
        (["run", "--real", "real.jsonl", *COLUMNS, "-o", "run"], "name a file in an existing folder with -o"),
        (["run", "--real", "real.jsonl", *COLUMNS, "--limit", "1"], "limit must be at least 2"),
        (["run", "--real", "real.jsonl", *COLUMNS, "--embedded", "0"], "embedded must be at least 2"),
        (["run", "--real", "real.jsonl", *COLUMNS, "--seed", "-1"], "seed must be at least 0"),
        (["run", "--real", "real.jsonl", *COLUMNS, "--confidence", "1"], "confidence must be strictly between 0 and 1"),
        (["run", "--real", "real.jsonl", *COLUMNS, "--mauve-buckets", "1"], "mauve_buckets must be at least 2"),
        (["run"], "Missing option '--real'"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    arguments: list[str], says: str, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing").mkdir()
    write(tmp_path / "out" / "synthetic.jsonl", notes(300, 0), "text", "label")
    (tmp_path / "out" / "claim.json").write_text("{}\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "real.txt").write_text("text")
    (tmp_path / "latin.jsonl").write_bytes(b'{"note": "caf\xe9"}\n' * 3)
    write(tmp_path / "single.jsonl", [("one text", "x")])
    write(tmp_path / "unlabelled.jsonl", [("a", None), ("b", None)], "text", "label")
    write(tmp_path / "identified.jsonl", [(f"text {i}", f"id {i}") for i in range(300)])
    before = sorted(tmp_path.rglob("*"))
    result = dpassay(*arguments)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("dpassay: ")
    assert says in last
    assert "Traceback" not in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_errors_hold_nothing_of_a_record(tmp_path: Path, files: dict[str, Path]) -> None:
    real = tmp_path / "bad.jsonl"
    real.write_text('{"note": "first", "health": "good"}\n{"note": ["SECRET"], "health": "good"}\n')
    result = dpassay(files["run"], "--real", real, *COLUMNS)
    assert result.returncode == 2
    assert "line 2" in result.stderr
    assert "SECRET" not in result.stderr


def test_numbers_go_beside_the_folder_of_a_file(files: dict[str, Path]) -> None:
    dpassay(files["run"] / "private" / "synthetic.jsonl", "--real", files["real"], "--text", "note", "-q")
    assert (files["run"] / "private" / "utility.json").is_file()
    dpassay(files["held_out"], "--synthetic-text", "note", "--real", files["real"], "--text", "note", "-q")
    assert (files["real"].parent / "private" / "utility.json").is_file()


def test_help_shows_an_example_and_says_private() -> None:
    shown = " ".join(dpassay("--help").stdout.split())
    assert "Example: dpassay utility report --real notes.jsonl --label topic" in shown
    assert "computed from private data" in shown


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "utility.md").read_text(), flags=re.DOTALL)
    commands = re.findall(r"```sh\ndpassay utility (.*?)\n```", (DOCS / "utility.md").read_text(), flags=re.DOTALL)
    assert blocks
    assert commands
    monkeypatch.chdir(tmp_path)
    rows = notes(300, 0)
    write(tmp_path / "report" / "private" / "synthetic.jsonl", rows[:100], "text", "label")
    write(tmp_path / "notes.jsonl", rows[100:200], "text", "topic")
    write(tmp_path / "unseen.jsonl", rows[200:], "text", "topic")
    for line in commands:
        result = dpassay(*line.replace("\\\n", " ").split(), "-q")
        assert result.returncode == 0, result.stderr
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)  # noqa: S102 (our own documentation)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's account of memory")
def test_a_hundred_thousand_texts_fit_into_two_gibibytes(tmp_path: Path) -> None:
    """100 000 texts of 200 words on each side, the peak of the process (`ru_maxrss` would count that of its parent)."""
    import numpy as np

    draw = np.random.default_rng(0)
    vocabulary = np.array([f"w{i:x}" for i in range(50_000)])
    weights = 1 / np.arange(1, 50_001)
    for name in ("made", "real"):
        with (tmp_path / f"{name}.jsonl").open("w") as file:
            for _ in range(20):
                chosen = vocabulary[draw.choice(50_000, size=(5000, 200), p=weights / weights.sum())]
                for i, row in enumerate(chosen.tolist()):
                    file.write(json.dumps({"text": " ".join(row), "label": "abcd"[i % 4]}) + "\n")
    code = (
        "import pathlib\nfrom dpassay.cli.app import run_command\n"
        "assert run_command(['utility', 'made.jsonl', '--real', 'real.jsonl', '--label', 'label', '-q']) == 0\n"
        "print(pathlib.Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert int(done.stdout) < 2 * 2**20  # KiB
