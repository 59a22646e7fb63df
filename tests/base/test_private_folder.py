"""Folders `private/` that were there before: only their owner may read them, or they are refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from command import run
from marginal_tables import pretend
from small_claims import GENERATORS, written
from text_server import text_server

from dpassay.accounting.ledger import run_files
from dpassay.base import private_files, private_results
from dpassay.base.errors import InputError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


def locked(private: Path) -> None:
    with private_files.one_process(private):
        pass


def results(private: Path) -> None:
    private_results.write({"a": 1}, private / "table-utility.json")


WRITERS: list[Callable[[Path], object]] = [
    locked,
    run_files.prepare,
    results,
    lambda private: private_files.write_private(private / "scores.json", "{}"),
]


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o777


@pytest.fixture
def opened(tmp_path: Path) -> Path:
    """A folder ``private/`` as a copy or an unpacked archive makes it: everyone may read it."""
    private = tmp_path / "run" / "private"
    (private / "kept").mkdir(parents=True)
    for file in (private / "notes.txt", private / "kept" / "games.npz"):
        file.write_text("private")
        file.chmod(0o644)
    (tmp_path / "outside.txt").write_text("public")
    (tmp_path / "outside.txt").chmod(0o644)
    (private / "link").symlink_to(tmp_path / "outside.txt")
    for folder in (private, private / "kept"):
        folder.chmod(0o755)
    return private


@pytest.mark.parametrize("write", WRITERS)
def test_an_open_folder_is_closed_with_all_that_it_holds(write: Callable[[Path], object], opened: Path) -> None:
    write(opened)
    collected = [path for path in (opened, *opened.rglob("*")) if not path.is_symlink()]
    assert len(collected) >= 4
    assert [path for path in collected if mode(path) & 0o077] == []
    assert [mode(path) for path in (opened, opened / "kept", opened / "notes.txt")] == [0o700, 0o700, 0o600]


def test_every_generator_closes_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pretend(monkeypatch)  # of OpenDP
    with text_server() as server:
        for generator in GENERATORS:
            folder = tmp_path / generator
            written(folder, generator, server.url)
            (folder / "run" / "private").mkdir(parents=True)
            (folder / "run" / "private" / "notes.txt").write_text("private")
            (folder / "run" / "private").chmod(0o755)
            assert run("generate", folder / "claim.yaml", "-o", folder / "run", "-q").returncode == 0
            assert [path for path in (folder / "run" / "private").rglob("*") if mode(path) & 0o077] == []
            assert mode(folder / "run" / "private") == 0o700


def test_what_lies_outside_is_left_as_it_is(opened: Path) -> None:
    before = mode(opened.parent)
    private_files.make_private(opened)
    assert (mode(opened.parents[1] / "outside.txt"), mode(opened.parent)) == (0o644, before)


@pytest.mark.parametrize("bits", [0o755, 0o750, 0o701])
@pytest.mark.parametrize("write", WRITERS)
def test_a_link_to_an_open_folder_is_refused(write: Callable[[Path], object], bits: int, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").chmod(bits)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "private").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"is a link to a folder that others may read.*chmod -R go-rwx"):
        write(tmp_path / "run" / "private")
    assert mode(tmp_path / "elsewhere") == bits
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "elsewhere").chmod(0o700)
    write(tmp_path / "run" / "private")


@pytest.mark.parametrize("whose", ["private", "private/notes.txt"])
def test_what_belongs_to_another_user_is_refused(whose: str, opened: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, stat, lstat = opened.parent / whose, Path.stat, Path.lstat

    class Foreign:
        """A file's status with another owner."""

        def __init__(self, found: os.stat_result) -> None:
            self.st_mode, self.st_uid = found.st_mode, found.st_uid + 1

    monkeypatch.setattr(Path, "stat", lambda self, **k: Foreign(stat(self, **k)) if self == path else stat(self, **k))
    monkeypatch.setattr(Path, "lstat", lambda self: Foreign(lstat(self)) if self == path else lstat(self))
    with pytest.raises(InputError, match=f"{whose}: belongs to another user"):
        private_files.make_private(opened)


def test_a_disk_that_keeps_no_permissions_is_refused(opened: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "chmod", lambda self, mode, **_: None)
    with pytest.raises(InputError, match="its disk keeps no permissions"):
        private_files.make_private(opened)


def test_rights_of_the_owner_are_not_widened(opened: Path) -> None:
    (opened / "notes.txt").chmod(0o444)
    private_files.make_private(opened)
    assert mode(opened / "notes.txt") == 0o400
