"""What commands print beside their results: nothing of a record, of how many there are, or of how long one is."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import command
import pytest
from small_models import save_model
from whole_documents import every_document_ends

from dpassay.cli.exit_codes import ExitCode
from dpassay.mechanisms.models.language_model import LanguageModel

MARK = "zqxj"
INFERENCE = """
name: notes
data: {source: file, path: notes.jsonl}
unit: record
adjacency: add_remove
mechanism: private_inference
parameters: {aggregate: median, clip: 5.0, temperature: 1.0, batch_size: 4, tokens: 5, document_tokens: 5}
public: {records: 16, context_tokens: 40}
guarantee: {type: ex_post, epsilon: 1000.0}
audits: [leave_one_out]
"""
SECRETS = """
name: notes
data: {source: file, path: notes.jsonl}
unit: secret
adjacency: secret
mechanism: secret_evolution
parameters:
  {secrets: [{pattern: '[a-z]{4}[0-9]+'}], p: 0.001, r: 0.05, rounds: 1, synthetic: 6, variations: 2, clusters: 2,
   writing: {max_tokens: 8}}
public: {records: 16}
guarantee: {type: secret_protection, p: 0.001, r: 0.05}
"""
AUG_PE = """
name: notes
data: {source: file, path: notes.jsonl}
unit: record
adjacency: add_remove
mechanism: aug_pe
parameters: {rounds: 1, synthetic: 6, variations: 2, noise_multiplier: 3.0, writing: {max_tokens: 8}}
public: {records: 16}
guarantee: {type: approx_dp, epsilon: 100.0, delta: 1.0e-3}
"""
VECTORS = """
name: notes
data: {source: file, path: notes.jsonl}
mechanism: dataset_vectors
parameters:
  {noise_multiplier: 2.0, shots_noise_multiplier: 2.0, candidates: 4, negatives: 4, shots: 1,
   writing: {texts: 2, longest: 8, longest_record: 20}}
public: {records: 16}
guarantee: {type: approx_dp, epsilon: 100.0, delta: 1.0e-3}
"""
CLAIMS = {
    "inference": INFERENCE,
    "secrets": SECRETS,
    "aug_pe": AUG_PE,
    "vectors": VECTORS,
}


def neighbours(claim: str) -> dict[str, list[str]]:
    """Marked records, and neighbours of them: one removed, one more, one longer than all others; or other secrets."""
    public = [f"a note of {word} for everybody" for word in ("april", "may", "june", "july")]
    records = [f"{MARK}{index} came to the ward and stayed for {index} days" for index in range(12)] + public
    if claim == "secrets":
        return {"all": records, "other": [text.replace(f"{MARK}3 ", f"{MARK}{'7' * 300} ") for text in records]}
    results = {"all": records, "one more": [*records, f"{MARK}12 came too"]}
    if claim in ("inference", "vectors"):
        results |= {"one removed": records[1:], "one longer": [*records[:3], " ".join([records[3]] * 60), *records[4:]]}
    return results


def written(folder: Path, claim: str, records: list[str]) -> Path:
    folder.mkdir()
    (folder / "notes.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in records))
    (folder / "public.jsonl").write_text("".join(json.dumps({"text": f"public text {i}"}) + "\n" for i in range(6)))
    (folder / "claim.yaml").write_text(claim)
    return folder / "claim.yaml"


@pytest.fixture(scope="module", autouse=True)
def whole_documents() -> Iterator[None]:
    with every_document_ends():
        yield


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose window is shorter than the longest record, which its tokenizer would tell of."""
    folder = save_model(tmp_path_factory.mktemp("model") / "small", "gpt2")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 128}))
    return folder


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What libraries log at any level, wherever it would be printed."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in (None, "transformers", "sentence_transformers", "datasets")]
    for logger in loggers:
        logger.addHandler(handler)
    yield lines
    for logger in loggers:
        logger.removeHandler(handler)


def shown(result: command.Result) -> tuple[int, list[str]]:
    """The exit code, and the stages and notes that a command reported; anything else on standard error is a mistake."""
    stages = []
    for line in result.stderr.splitlines():
        row = json.loads(line)
        if "stage" in row:
            assert 0 <= row.pop("percent") <= 100
        stages.append(row.pop("stage", None) or row.pop("note"))
        assert not row, line
    assert MARK not in result.stdout + result.stderr
    return result.returncode, list(dict.fromkeys(stages))


@pytest.mark.grid
@pytest.mark.parametrize("claim", ["inference", pytest.param("secrets", marks=pytest.mark.slow), "aug_pe", "vectors"])
def test_neighbours_are_told_apart_by_nothing_that_is_shown(
    claim: str, tmp_path: Path, small: Path, logged: list[str]
) -> None:
    seen, asked = {}, [] if claim == "secrets" else ["--delta", "1e-3"]
    for name, records in neighbours(claim).items():
        path = written(tmp_path / name, CLAIMS[claim], records)
        out = path.parent / "out"
        results = [shown(command.run("assay", path, "-o", out, "--model", small, "--device", "cpu", "--json"))]
        results.append(shown(command.run("account", out / "private" / "ledger.sqlite", *asked, "--json")))
        results.append(shown(command.run("release", out, "-o", path.parent / "released", "--json")))
        results.append(
            shown(command.run("utility", path.parent / "public.jsonl", "--real", path.parent / "notes.jsonl", "--json"))
        )
        assert all(code == ExitCode.DONE for code, _ in results), name
        again = command.run("assay", path, "-o", out, "--model", small, "--device", "cpu", "-q")
        assert (again.stdout, again.stderr) == ("", ""), name
        seen[name] = results
    assert all(results == seen["all"] for results in seen.values())
    assert logged == []


def test_a_long_text_is_encoded_without_a_word(
    small: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """In Python, too: the tokenizer's own call logs the length of a text that is longer than the window."""
    text = "a long text " * 200
    model = LanguageModel.load(small, device="cpu")
    with caplog.at_level("DEBUG"):
        model.encode(text)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
