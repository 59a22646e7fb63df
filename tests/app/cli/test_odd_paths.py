"""Paths where something else lies, or nothing may be written: one line, exit code 2, and nothing made or changed.

Most of them stop every user. Bits of permission do not stop root, who skips those.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import command
import pytest
from whole_documents import every_document_ends

from dpassay.accounting.ledger.entries import LedgerError, LedgerFileError
from dpassay.base import private_files
from dpassay.base.errors import InputError
from dpassay.data.corpora import notes
from dpassay.mechanisms.embedding.centres import Centres

CLAIM = """
name: tiny
data: {source: file, path: data.jsonl}
mechanism: private_inference
parameters: {aggregate: mean, clip: 10.0, temperature: 1.2, batch_size: 2, tokens: 5}
public: {records: 6, context_tokens: 48}
guarantee: {type: pure_dp, epsilon: 100000.0}
"""


@pytest.fixture(scope="module", autouse=True)
def whole_documents() -> Iterator[None]:
    with every_document_ends():
        yield


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a claim and its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("claim.yaml").write_text(CLAIM)
    Path("data.jsonl").write_text("".join(json.dumps({"text": f"SECRET {i}"}) + "\n" for i in range(6)))
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `here`, with an assayed run in `run`."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        Path("claim.yaml").write_text(CLAIM)
        Path("data.jsonl").write_text("".join(json.dumps({"text": f"SECRET {i}"}) + "\n" for i in range(6)))
        result = command.run("assay", "claim.yaml", "-o", "run", "-q")
        assert result.returncode == 0, result.stderr
    return folder


def tree(folder: Path) -> dict[str, object]:
    """All that lies in a folder: name → content, target of a link, or None for other things; no log of SQLite."""
    results: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            results[name] = os.readlink(path)
        elif not name.endswith(("-wal", "-shm")):
            results[name] = path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else None
    return results


def one_line(result: command.Result, says: str) -> None:
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert command.plain(result.stderr).startswith("dpassay: ")
    assert re.search(says, command.plain(result.stderr)), result.stderr
    assert "SECRET" not in result.stderr


def refused(says: str, *arguments: object) -> None:
    """The command says why in one line, and leaves everything as it is."""
    before = tree(Path())
    one_line(command.run(*arguments), says)
    assert tree(Path()) == before


def file(path: str) -> Callable[[], None]:
    return lambda: write(path, "another thing")


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def link(path: str, target: str) -> Callable[[], None]:
    def make() -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).symlink_to(target)

    return make


def folder(path: str) -> Callable[[], None]:
    return lambda: Path(path).mkdir(parents=True)


def nothing() -> None:
    pass


LONG = "x" * 300

ODD: dict[str, tuple[Callable[[], None], str, list[str]]] = {
    "DIR is a file": (file("run"), "run: is a file, but the output is a folder", []),
    "DIR is a link to nowhere": (link("run", "nowhere"), "run: file exists", []),
    "DIR is a link to a file": (link("run", "claim.yaml"), "run: is what the command reads", []),
    "DIR is a link to itself": (link("run", "run"), "run.*(too many levels|file exists)", []),
    "DIR has a name too long": (nothing, "file name too long", ["-o", LONG]),
    "DIR lies in a file": (nothing, "claim.yaml.*: (not a directory|file exists)", ["-o", "claim.yaml/run"]),
    "DIR lies in a device": (nothing, "/dev/null.*: (not a directory|file exists)", ["-o", "/dev/null/run"]),
    "DIR has a zero byte in its name": (nothing, "null byte", ["-o", "a\0b"]),
    "private is a file": (file("run/private"), "run/private: file exists", []),
    "private is a link to nowhere": (link("run/private", "nowhere"), "run/private: file exists", []),
    "private is a link to itself": (link("run/private", "private"), "run/private.*(too many|file exists)", []),
    "the lock is a folder": (folder("run/private/lock"), "run/private/lock: is a directory", []),
    "the lock is a link": (link("run/private/lock", "../../claim.yaml"), "run/private/lock: too many levels", []),
    "the ledger is a folder": (folder("run/private/ledger.sqlite"), "ledger.sqlite: a ledger is a file", []),
    "the ledger is text": (file("run/private/ledger.sqlite"), "ledger.sqlite: this file is not a ledger", []),
    "the ledger is empty": (lambda: write("run/private/ledger.sqlite", ""), "this file is not a ledger", []),
    "a candidate's file without its ledger": (file("run/private/candidates.jsonl"), "exists without its ledger", []),
    "documents that are a folder": (folder("run/private/synthetic.jsonl"), "exists without its ledger", []),
    "the anchor lies nowhere": (nothing, "no/anchor: there is no anchor file", ["--anchor", "no/anchor"]),
    "the anchor is a folder": (folder("anchor"), "anchor: is a directory", ["--anchor", "anchor"]),
    "the anchor is text": (file("anchor"), "anchor: this file is damaged", ["--anchor", "anchor"]),
    "the anchor lies in a file": (nothing, "claim.yaml/a: not a directory", ["--anchor", "claim.yaml/a"]),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", ODD)
def test_a_run_on_an_odd_path_is_refused_and_leaves_nothing(name: str, here: Path) -> None:
    make, says, options = ODD[name]
    make()
    for job in ("generate", "assay"):
        refused(says, job, "claim.yaml", *(["-o", "run"] if "-o" not in options else []), *options)


def test_the_same_command_works_when_the_path_is_free(here: Path) -> None:
    file("run")()
    refused("run: is a file, but the output is a folder", "generate", "claim.yaml", "-o", "run")
    Path("run").unlink()
    assert command.run("generate", "claim.yaml", "-o", "run").returncode == 0
    assert {path.name for path in Path("run/private").iterdir()} == {
        "ledger.sqlite",
        "synthetic.jsonl",
        "synthetic.parquet",
        "batching-key.txt",
    }


@pytest.mark.grid
@pytest.mark.parametrize(
    "name", ["synthetic.jsonl", "synthetic.parquet", "batching-key.txt", "assay.json", "report.html"]
)
def test_a_folder_where_a_file_of_a_run_goes(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "case")
    monkeypatch.chdir(tmp_path / "case")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "case" / "state"))
    path = Path("run/private") / name
    path.unlink()
    path.mkdir()
    one_line(command.run("assay", "claim.yaml", "-o", "run", "-q"), f"{path}: is a directory")
    assert not list(Path("run").rglob("*.partial"))
    path.rmdir()
    assert command.run("assay", "claim.yaml", "-o", "run", "-q").returncode == 0
    assert path.is_file()


RELEASES: dict[str, tuple[Callable[[], None], str, str]] = {
    "OUT is a file": (file("out"), "out: is a file, but the output is a folder", "out"),
    "OUT is a link to nowhere": (link("out", "nowhere"), "out: exists and is not empty", "out"),
    "OUT holds something": (file("out/a"), "out: exists and is not empty", "out"),
    "OUT lies in a file": (nothing, "claim.yaml/out: (not a directory|file exists)", "claim.yaml/out"),
    "OUT lies in private": (nothing, "lies in the private folder", "run/private/out"),
    "OUT has a name too long": (nothing, "file name too long", LONG),
    "OUT lies in a device": (nothing, "/dev/null/out: (not a directory|file exists)", "/dev/null/out"),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", RELEASES)
def test_a_release_to_an_odd_path_is_refused_and_leaves_nothing(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, says, output = RELEASES[name]
    shutil.copytree(finished, tmp_path / "case")
    monkeypatch.chdir(tmp_path / "case")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "case" / "state"))
    make()
    refused(says, "release", "run", "-o", output)
    assert command.run("release", "run", "-o", "another").returncode == 0


@pytest.mark.parametrize("where", [".", "run", "run/private", "run/private/ledger.sqlite", "data.jsonl", "claim.yaml"])
def test_without_permission_nothing_changes(where: str, here: Path) -> None:
    folder("run/private")()
    if where.endswith("sqlite"):
        Path("run").chmod(0o755)
        assert command.run("generate", "claim.yaml", "-o", "run").returncode == 0
    elif where == ".":
        shutil.rmtree("run")
    elif where == "run":
        Path("run/private").rmdir()
    path = Path(where)
    path.chmod(0o500 if path.is_dir() else 0o400 if path.suffix == ".sqlite" else 0o000)
    try:
        if os.access(path, os.W_OK):
            pytest.skip("bits of permission do not stop root")
        refused("[Pp]ermission denied|check the rights|is not readable", "assay", "claim.yaml", "-o", "run", "-q")
    finally:
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert command.run("assay", "claim.yaml", "-o", "run").returncode == 0


def test_another_name_does_not_replace_the_documents_of_a_run(here: Path) -> None:
    assert command.run("generate", "claim.yaml", "-o", "run", "-q").returncode == 0
    Path("claim.yaml").write_text(CLAIM.replace("name: tiny", "name: other"))
    for job in ("generate", "assay"):
        refused(
            "run: holds the run 'tiny', whose documents those of 'other' would replace", job, "claim.yaml", "-o", "run"
        )
    assert command.run("generate", "claim.yaml", "-o", "other", "-q").returncode == 0
    Path("claim.yaml").write_text(CLAIM)
    assert command.run("assay", "claim.yaml", "-o", "run", "-q").returncode == 0


def test_folders_that_share_a_ledger_hold_a_run_each(here: Path) -> None:
    assert command.run("generate", "claim.yaml", "-o", "run", "-q").returncode == 0
    link("second/private/ledger.sqlite", str(here / "run/private/ledger.sqlite"))()
    for name in ("second", "third"):
        Path("claim.yaml").write_text(CLAIM.replace("name: tiny", f"name: {name}"))
        arguments = ("generate", "claim.yaml", "-o", "second", "-q")
        if name == "second":
            assert command.run(*arguments).returncode == 0
        else:
            refused("second: holds the run .* whose documents those of 'third' would replace", *arguments)


def test_what_a_killed_process_left_is_removed_by_the_next(here: Path) -> None:
    left = [
        "synthetic.jsonl.12-0123abcd.partial",
        "report.html.12-0123abcd.partial",
        "audits/seed.txt.12-0123abcd.partial",
        ".ledger.sqlite.abcd_123.new",
        ".ledger.sqlite.abcd_123.new-wal",
    ]
    for name in (*left, "lock", "mine.partial"):
        write(f"run/private/{name}", "")
    write("run/private/audits/mine.txt", "")
    Path("run/private/audits").rename("audits")
    assert command.run("generate", "claim.yaml", "-o", "run", "-q").returncode == 0
    there = {path.name for path in Path("run/private").iterdir()}
    assert there == {"ledger.sqlite", "synthetic.jsonl", "synthetic.parquet", "batching-key.txt", "mine.partial"}


def test_a_folder_is_free_again_after_an_error_and_for_the_process_itself(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "run" / "private"
    with contextlib.suppress(ZeroDivisionError), private_files.one_process(folder):
        with pytest.raises(InputError, match="another process is working in"), private_files.one_process(folder):
            pass
        assert (folder / "lock").exists()
        raise ZeroDivisionError
    assert not (tmp_path / "a").exists()
    with private_files.one_process(folder):
        (folder / "kept").write_text("")
    assert [path.name for path in folder.iterdir()] == ["kept"]


@contextlib.contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """No file of this process grows beyond a size, in bytes, as on a disk that is nearly full."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # Python 3.11 keeps a file of it that is cut off
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = bytecode
        signal.signal(signal.SIGXFSZ, handler)


KEY = "personal-data-key.json"

COMMANDS: dict[str, tuple[str, list[str]]] = {
    "centres": ("c.safetensors", ["texts.jsonl", "-o", "c.safetensors", "--count", "5"]),
    "compare gaussian": ("f.svg", ["--noise-multiplier", "2", "--delta", "1e-5", "--method", "gdp", "-o", "f.svg"]),
    "audit plan": ("plan", ["--canaries", "20", "-o", "plan"]),
    "audit runs plan": ("runs", ["--like", "signals.csv", "--runs", "20", "-o", "runs", "-q"]),
    "audit secrets": (
        "audit",
        ["--p", ".1", "--r", ".3", "--occurrences", "1", "--sampling-probability", ".5", "--sigma", "3", "-o", "audit"],
    ),
    "audit text": (
        "text-audit.json",
        ["texts.jsonl", "--source", "seen.jsonl", "--holdout", "unseen.jsonl", "-o", "text-audit.json"],
    ),
    "audit membership scores": ("signals.json", ["signals.csv", "--coins", "--delta", "1e-5", "-o", "signals.json"]),
    "utility": ("utility.json", ["texts.jsonl", "--real", "seen.jsonl", "-o", "utility.json", "-q"]),
    "table utility": (
        "utility.json",
        ["signals.csv", "--real", "signals.csv", "--schema", "schema.yaml", "-o", "utility.json", "-q"],
    ),
}


@pytest.fixture(scope="module")
def centres() -> Centres:
    return Centres.fit([f"text number {i} of {i * i}" for i in range(30)], 5)


@pytest.fixture
def inputs(here: Path, centres: Centres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Centres, "fit", lambda *_, **__: centres)
    monkeypatch.setattr("dpassay.utility.frechet.REPLICATES", 20)
    monkeypatch.setattr("dpassay.utility.frechet.HALVINGS", 4)
    monkeypatch.setattr("dpassay.auditing.secrets.attack._MAX_GAMES", 60)
    monkeypatch.setattr("dpassay.auditing.secrets.attack._MAX_ENTROPY_GAMES", 30)
    texts = [json.dumps({"text": text}) + "\n" for text, _ in notes(80, 0)]
    for name, some in (("texts", texts), ("seen", texts[:40]), ("unseen", texts[40:])):
        Path(f"{name}.jsonl").write_text("".join(some))
    rows = [f"{i % 7},{i % 2}" for i in range(60)]
    Path("signals.csv").write_text("\n".join(["target,included", *rows]) + "\n")
    Path("schema.yaml").write_text("columns: [{name: target, type: number, low: 0, high: 6}]")


@pytest.mark.grid
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_write_on_a_full_disk_and_where_something_lies(name: str, inputs: None) -> None:
    made, arguments = COMMANDS[name]
    with no_file_above(50):
        result = command.run(*name.split(), *arguments)
    result.stderr = result.stderr.splitlines(keepends=True)[-1]  # after progress
    one_line(result, f"{KEY if name == 'audit text' else made}.*: file too large")
    if name != "audit secrets":
        assert not Path(made).exists()
    assert not [path for path in Path().rglob("*") if "partial" in path.name or path.name.startswith(".")]
    if Path(made).exists():
        shutil.rmtree(made)
    if "." in made:
        Path(made).mkdir()
    else:
        Path(made).write_text("another thing")
    refused(
        f"{made}.*: (is a (directory|folder|file)|is no file|is there already|file exists|not a directory"
        "|exists and is not an empty folder)",
        *name.split(),
        *arguments,
    )
    Path(made).rmdir() if Path(made).is_dir() else Path(made).unlink()
    result = command.run(*name.split(), *arguments)
    assert result.returncode in (0, 1), result.stderr
    assert Path(made).exists()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "run/a"), "run/a: no space left on device; correct this"),
        (OSError(errno.EIO, "Input/output error"), "a file cannot be written: input/output error; correct this"),
        (LedgerFileError("run/ledger.sqlite: the disk is full"), "run/ledger.sqlite: the disk is full"),
        (LedgerError("commit of 'a' without a charge"), None),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "templates/a"), None),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), None),
        (OSError("a library says something"), None),
        (ValueError("a number is not one"), None),
    ],
)
def test_a_fault_of_the_tool_is_no_fault_of_a_disk(
    error: Exception, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("dpassay.accounting.comparison.comparison.support", fails)
    result = command.run("accountants")
    if says is None:
        assert result.returncode == 3
        assert result.stderr.startswith("Traceback")
        assert "this is a fault of dpassay" in result.stderr
    else:
        one_line(result, f"^dpassay: {says}")
