"""`dpassay centres`: public text in, a file of centres out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpassay.cli.app import run_command
from dpassay.mechanisms.embedding.centres import Centres


@pytest.fixture
def public(tmp_path: Path) -> Path:
    path = tmp_path / "public.jsonl"
    path.write_text("".join(json.dumps({"body": f"text number {i} of {i * i}"}) + "\n" for i in range(30)))
    return path


def test_centres_are_written_and_read_again(public: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "centres.safetensors"
    assert run_command(["centres", str(public), "-o", str(output), "--count", "5", "--text", "body"]) == 0
    assert capsys.readouterr().out == f"5 centres of 30 public texts in {output}\n"
    result = Centres.load(output)
    assert result.count == 5
    assert result.fingerprint == Centres.fit([f"text number {i} of {i * i}" for i in range(30)], 5).fingerprint


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_workers_find_the_same_centres(workers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, files = tmp_path / "public.jsonl", [tmp_path / "alone.safetensors", tmp_path / "together.safetensors"]
    texts.write_text("".join(json.dumps({"text": f"text number {i} of {i * i}"}) + "\n" for i in range(1500)))
    command = ["centres", str(texts), "--count", "5", "--json"]
    for file, options in zip(files, ([], ["--workers", str(workers)]), strict=True):
        assert run_command([*command, "-o", str(file), *options]) == 0
        last = capsys.readouterr().err.splitlines()[-1]
        assert json.loads(last) == {"stage": "Embedding public texts", "percent": 100}
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--count", "31", "--text", "body"], "31 centres need at least as many public texts, not 30"),
        (["--count", "0", "--text", "body"], "count must be at least 1"),
        ([], "there is no column 'text'"),
        (["--text", "body", "--embedder", "no/such-model"], "not in the local cache"),
        (["--text", "body", "-o", "no/such/folder.safetensors"], "its folder does not exist"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    public: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    output = tmp_path / "centres.safetensors"
    assert run_command(["centres", str(public), "-o", str(output), *options]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not output.exists()
