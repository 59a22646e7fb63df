"""The commit is that of the checkout, or the one that a built package holds; versions agree."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import dpassay
from dpassay.base import commit

ROOT = Path(__file__).resolve().parents[2]
NAME = "0" * 39 + "1"


def package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = folder / "dpassay"
    made.mkdir()
    monkeypatch.setattr("dpassay.base.commit.resources.files", lambda name: made)
    return made


def test_a_built_package_holds_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, monkeypatch).joinpath("commit.txt").write_text(f"{NAME}\n")
    assert commit.commit() == NAME
    assert commit.commit_in_words() == f", commit {NAME}"


def test_without_a_checkout_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, monkeypatch)
    assert commit.commit() is None
    assert commit.commit_in_words() == ""


def test_a_checkout_says_its_commit_and_whether_files_were_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, monkeypatch)
    (tmp_path / "file").write_text("one")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "file"], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    known = commit.commit()
    assert known is not None
    assert re.fullmatch("[0-9a-f]{40}", known)
    (tmp_path / "file").write_text("two")
    assert commit.commit() == known + "+"


def test_a_checkout_that_git_cannot_read_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, monkeypatch)
    (tmp_path / ".git").mkdir()
    assert commit.commit() is None


def test_every_file_states_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert project["version"] == dpassay.__version__ == cited["version"]
    assert project["license"] == cited["license"]
