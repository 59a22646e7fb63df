"""What was audited is said: the command as it was typed, the files that it names, machine, time, seeds, failures."""

from __future__ import annotations

import hashlib
import html
import json
import platform
import socket
import sys
from pathlib import Path

import command
import numpy
import pytest
from whole_pages import outside

from dpassay.auditing.many_runs.audited import of_generator
from dpassay.audits.games import many_runs_power


@pytest.fixture(autouse=True)
def fewer_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_runs_power, "REPETITIONS", 50)


def done(*arguments: object, code: int = 0) -> str:
    result = command.run("audit", "runs", *arguments)
    assert result.returncode == code, (result.stdout, result.stderr)
    return result.stdout


COPY = """import shutil, sys
if False:
    import numpy.linalg
shutil.copy(sys.argv[1], sys.argv[2])
"""


def test_the_page_says_what_was_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gen.py").write_text(COPY)
    (tmp_path / "c.yaml").write_text("epsilon: 1\n")
    (tmp_path / "people.csv").write_text("age,city\n" + "".join(f"{20 + i % 9},{'AB'[i % 2]}\n" for i in range(30)))
    title = "Copies of people, <b>version 7</b>"
    about = ("--like", "people.csv", "--epsilon", 0.5, "--runs", 40, "--neighbors", "new_category", "--title", title)
    planned = json.loads(done("plan", *about, "-o", "runs", "--json"))
    typed = f"{sys.executable} gen.py {{input}} {{output}} --config=c.yaml --name gen.py"
    done("run", "runs", "--command", typed, "-q")
    done("bound", "runs", "-q", code=1)
    document = json.loads(done("report", "runs", "--json"))
    arm = document["audited"]["arms"]["claimed"]
    (generator,) = arm["generators"]
    assert document["name"] == planned["title"] == title
    assert generator["command"] == typed
    digests = {item["file"]: item["sha256"] for item in generator["files"]}
    for word, file in {"gen.py": "gen.py", "--config=c.yaml": "c.yaml"}.items():
        assert digests[word] == hashlib.sha256((tmp_path / file).read_bytes()).hexdigest()
    assert set(digests) == {sys.executable, "gen.py", "--config=c.yaml"}
    assert generator["versions"]["python"] == platform.python_version()
    assert generator["generator_versions"] == {"python": platform.python_version(), "numpy": numpy.__version__}
    assert generator["takes_seed"] is False
    assert arm["failures"]["pilot"]["failed"] == arm["failures"]["test"]["failed"] == 0
    assert arm["failures"]["pilot"]["made"] + arm["failures"]["test"]["made"] == document["audit"]["details"]["runs"]
    assert generator["started"] <= document["audited"]["ended"]
    page = (tmp_path / "runs" / "report.html").read_text()
    assert "<b>version" not in page
    words = outside(page)
    for said in (
        html.escape(title),
        "SHA-256 of gen.py",
        digests["gen.py"],
        f"python {platform.python_version()}, numpy {numpy.__version__}",
        f"0 of {arm['failures']['test']['made']} test runs",
    ):
        assert said in words.replace("\u00a0", " "), said
    for content in (page, json.dumps(document)):
        assert str(tmp_path) not in content, "a path that nobody typed"
        assert len(socket.gethostname()) < 4 or socket.gethostname() not in content
    assert document["power"] == planned["power"], "one chance in one form"
    assert document["detectable"] == planned["detectable"]


def test_programs_of_the_path_and_words_that_name_nothing_are_no_files(tmp_path: Path) -> None:
    words = ["python", "-m", "module", "{input}", "{output}", "{seed}", str(tmp_path)]
    said = of_generator(" ".join(words), words, None, workers=1, timeout=1.0)
    assert said.files == []
    assert said.takes_seed


def test_versions_are_those_of_the_environment_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the working folder was run')\n")
    (tmp_path / "gen.py").write_text("from made_up.part import thing\n")
    other = tmp_path / "site"
    (other / "made_up-7.1.dist-info").mkdir(parents=True)
    (other / "made_up-7.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 7.1\n")
    (other / "made_up-7.1.dist-info" / "top_level.txt").write_text("made_up\n")
    monkeypatch.setenv("PYTHONPATH", str(other))
    words = [sys.executable, "gen.py", "{input}", "{output}"]
    said = of_generator(" ".join(words), words, None, workers=1, timeout=1.0)
    assert said.generator_versions == {"python": platform.python_version(), "made-up": "7.1"}


@pytest.mark.parametrize("script", ["import (", "\0"])
def test_a_script_that_is_not_read_leaves_versions_out(script: str, tmp_path: Path) -> None:
    (tmp_path / "gen.py").write_text(script)
    words = [sys.executable, str(tmp_path / "gen.py"), "{input}", "{output}"]
    said = of_generator(" ".join(words), words, None, workers=1, timeout=1.0)
    assert said.generator_versions == {}


@pytest.mark.parametrize("title", ["two\nlines", "x" * 201, "\x1b[31m"])
def test_a_title_is_one_line(title: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("age,city\n" + "".join(f"{20 + i % 9},{'AB'[i % 2]}\n" for i in range(30)))
    arguments = ("--like", tmp_path / "people.csv", "--title", title, "-o", tmp_path / "runs")
    result = command.run("audit", "runs", "plan", *arguments)
    assert result.returncode == 2
    assert "a title is one line of at most 200 characters" in result.stderr
    assert not (tmp_path / "runs").exists()
