"""The command line as a person meets it: exit codes, one-line errors, nothing half-written.

Most commands run in this process, because a new one takes seconds to load the libraries; some run in one of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import Result, run

from dpassay.cli import exit_codes

CLAIM = """
name: tiny
data: {source: builtin, name: keys}
mechanism: private_inference
parameters: {aggregate: median, clip: 10.0, temperature: 1.2, batch_size: 7, tokens: 12, prefix: "My 5-digit key is "}
public: {records: 28, context_tokens: 26}
guarantee: {type: pure_dp, epsilon: 100000.0}
"""


def dpassay(*arguments: object, cwd: Path | None = None) -> Result:
    """`dpassay` with these arguments, in a folder."""
    with contextlib.chdir(cwd or Path.cwd()):
        return run(*arguments)


def in_a_process_of_its_own(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dpassay", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    path = tmp_path / "claim.yaml"
    path.write_text(CLAIM)
    return path


def test_help_and_version_load_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, dpassay.cli.app\n"
        "status = dpassay.cli.app.run_command(['--help'])\n"
        "assert not {'torch', 'transformers', 'scipy', 'pydantic'} & set(sys.modules), sorted(sys.modules)\n"
        "sys.exit(status)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "assay" in result.stdout
    assert in_a_process_of_its_own("--version").stdout.startswith("dpassay ")


def test_import_dpassay_loads_neither_torch_nor_transformers() -> None:
    code = "import sys, dpassay, dpassay.accounting; assert not {'torch', 'transformers'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("command", ["assay", "generate", "account", "schema"])
def test_every_command_shows_an_example(command: str) -> None:
    result = dpassay(command, "--help")
    assert result.returncode == 0
    assert "Example: dpassay " + command in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["assay"], "Missing argument"),
        (["assay", "missing.yaml"], "missing.yaml"),
        (["assay", "claim.yaml", "--device", "tpu"], "--device must be auto, cpu or cuda, not 'tpu'"),
        (["assay", "claim.yaml", "--model", "no-such-folder/no-such-model"], "model"),
        (["assay", "claim.yaml", "--model", "."], "model"),
        (["assay", "bad.yaml"], "bad.yaml"),
        (["assay", "unknown.yaml"], "unknown key"),
        (["assay", "nofile.yaml"], "nowhere.jsonl"),
        (["generate", "bad.yaml", "-o", "out"], "bad.yaml"),
        (["account", "missing.sqlite", "--delta", "1e-5"], "missing.sqlite"),
        (["account", "claim.yaml", "no.ledger", "--delta", "1e-5"], "no.ledger"),
        (["account", "bad.yaml", "--delta", "1e-5"], "bad.yaml"),
        (["account", "claim.yaml", "--delta", "2"], "delta"),
        (["schema", "planet"], "planet"),
        (["report", "unknown.yaml"], "unknown.yaml: expects the folder of a run, which `dpassay assay` wrote"),
        (["report", "."], "expects the folder of a run"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(claim: Path, arguments: list[str], says: str, tmp_path: Path) -> None:
    for name in ("bad.yaml", "no.ledger"):
        (tmp_path / name).write_text("name: [")
    (tmp_path / "unknown.yaml").write_text(CLAIM + "colour: red\n")
    (tmp_path / "nofile.yaml").write_text(
        CLAIM.replace("{source: builtin, name: keys}", "{source: file, path: nowhere.jsonl}")
    )
    before = sorted(path.name for path in tmp_path.iterdir())
    result = dpassay(*arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("dpassay: ")
    assert says in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_mistake_exits_with_two_from_a_process_too() -> None:
    result = in_a_process_of_its_own("account", "missing.sqlite")
    assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)


def test_assay_writes_the_private_side_and_runs_again_from_the_ledger(claim: Path, tmp_path: Path) -> None:
    first = dpassay("assay", claim, "-o", tmp_path / "report", "--json")
    assert first.returncode == 0, first.stderr
    assay = json.loads(first.stdout)
    assert assay["verdict"] == "SUPPORTED"
    assert assay["ledger"]["planned"] is True
    written = sorted(str(path.relative_to(tmp_path / "report")) for path in (tmp_path / "report").rglob("*.*"))
    names = ("assay.json", "report.html", "synthetic.jsonl", "synthetic.parquet", "batching-key.txt", "ledger.sqlite")
    assert {f"private/{name}" for name in names} <= set(written)
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["private"]
    assert json.loads((tmp_path / "report/private/assay.json").read_text()) == assay
    assert (tmp_path / "report" / "private").stat().st_mode & 0o077 == 0
    documents = (tmp_path / "report/private/synthetic.jsonl").read_text()
    second = dpassay("assay", claim, "-o", tmp_path / "report", "--json")
    again = json.loads(second.stdout)
    assert again["ledger"]["events"] == assay["ledger"]["events"], "a finished run is drawn again, not charged again"
    assert again["ledger"]["entries"] == assay["ledger"]["entries"] + 1, "the second verdict"
    assert again["digests"] == assay["digests"]
    assert (tmp_path / "report/private/synthetic.jsonl").read_text() == documents


def test_another_claim_cannot_go_on_in_the_same_folder(claim: Path, tmp_path: Path) -> None:
    assert dpassay("generate", claim, "-o", tmp_path / "run").returncode == 0
    claim.write_text(CLAIM.replace("tokens: 12", "tokens: 13"))
    result = dpassay("generate", claim, "-o", tmp_path / "run")
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "run" in result.stderr


def test_other_data_cannot_go_on_in_the_same_folder(claim: Path, tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    claim.write_text(CLAIM.replace("{source: builtin, name: keys}", "{source: file, path: d.jsonl}"))
    assert dpassay("generate", claim, "-o", tmp_path / "run", "-q").returncode == 0
    (tmp_path / "d.jsonl").write_text('{"text": "one"}\n{"text": "three"}\n')
    result = dpassay("generate", claim, "-o", tmp_path / "run")
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "other records" in result.stderr
    assert "three" not in result.stderr


@pytest.mark.slow
def test_unproven_and_refuted_have_codes_of_their_own(claim: Path, tmp_path: Path) -> None:
    claim.write_text(CLAIM.replace("epsilon: 100000.0", "epsilon: 0.001"))
    result = dpassay("assay", claim, "-o", tmp_path / "report")
    assert result.returncode == 4
    assert "UNPROVEN" in result.stdout
    text = CLAIM.replace("aggregate: median, clip: 10.0", "aggregate: none, clip: 10.0").replace(
        "batch_size: 7", "batch_size: 1"
    )
    claim.write_text(text.replace("epsilon: 100000.0", "epsilon: 0.001") + "audits: [reconstruction]\n")
    result = dpassay("assay", claim, "-o", tmp_path / "other")
    assert result.returncode == 1, result.stderr
    assert "REFUTED" in result.stdout


def test_the_table_of_exit_codes_is_that_of_the_code() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reports.md").read_text(encoding="utf-8")
    section = page[page.index("## Exit codes") :].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    assert rows[2:] == [[str(int(code)), meaning] for code, meaning in exit_codes.MEANINGS.items()]
    assert set(exit_codes.MEANINGS) == set(exit_codes.ExitCode)


@pytest.mark.parametrize(
    "command",
    [
        ["assay"],
        *(["audit", name] for name in ("text", "table", "plan", "score", "bound", "secrets")),
        *(["audit", "membership", name] for name in ("scores", "model", "text")),
        *(["audit", "runs", name] for name in ("plan", "run", "score", "bound", "report")),
    ],
)
def test_help_says_the_exit_codes(command: list[str]) -> None:
    words = " ".join(dpassay(*command, "--help").stdout.replace("│", " ").split())
    audits = command[0] == "audit"
    refuted = "the claim is refuted" if audits else "REFUTED"
    for code, meaning in ((1, refuted), (2, "bad input"), (130, "interrupted")):
        assert f"{code} {meaning}" in words
    assert ("4 UNPROVEN" in words) != audits  # an audit supports no claim, so it leaves none unproven


RESUMES = "dpassay: interrupted; run the same command again to resume\n"
STARTS_ANEW = "dpassay: interrupted; this command does not resume; run it again from the start\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["assay", "claim.yaml"], RESUMES),
        (["generate", "claim.yaml", "-o", "run"], RESUMES),
        (["audit", "secrets", "--p", "0.1", "--output=games"], RESUMES),
        (["audit", "secrets", "--p", "0.1", "-ogames"], RESUMES),
        (["audit", "secrets", "--p", "0.1"], STARTS_ANEW),
        (["audit", "membership", "model", "c.jsonl", "--model", "m"], RESUMES),
        (["audit", "membership", "scores", "signals.csv", "-o", "found.json"], STARTS_ANEW),
        (["audit", "runs", "run", "runs", "--command", "gen"], RESUMES),
        (["audit", "runs", "score", "runs"], RESUMES),
        (["audit", "runs", "plan", "-o", "runs"], STARTS_ANEW),
        (["audit", "text", "s.jsonl"], STARTS_ANEW),
        (["account", "ledger.sqlite"], STARTS_ANEW),
        ([], STARTS_ANEW),
    ],
)
def test_an_interruption_says_truthfully_whether_it_resumes(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dpassay.cli.app.command_parser", interrupt)
    result = dpassay(*arguments)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", says)


@pytest.mark.grid
@pytest.mark.parametrize("module", ["typer", "dpassay.claims.read", "dpassay.jobs.assay", "numpy", "torch"])
def test_an_interruption_while_modules_are_imported_is_one_line(module: str, claim: Path) -> None:
    """The signal arrives where a module would be looked for, as Ctrl-C while the libraries load."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job begins by ignoring it
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        f"sys.argv = ['dpassay', 'assay', {str(claim)!r}]\n"
        "from dpassay.__main__ import main\n"
        "main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", RESUMES)


def test_an_interruption_inside_of_generated_code_ends_with_the_code_too(tmp_path: Path) -> None:
    """Where modules are made by `exec`, as dataclasses are, `python -m` would end by the signal, −2 in place of 130."""
    (tmp_path / "interrupted_in_exec.py").write_text(
        "import sys, dpassay.cli.app\n"
        "def interrupt(): exec('raise KeyboardInterrupt')\n"
        "dpassay.cli.app.command_parser = interrupt\n"
        "sys.exit(dpassay.cli.app.run_command(['assay']))"
    )
    command = [sys.executable, "-m", "interrupted_in_exec"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (130, RESUMES)


def test_a_fault_while_modules_are_imported_is_no_refutation(claim: Path) -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': raise ModuleNotFoundError('no typer', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        f"sys.argv = ['dpassay', 'assay', {str(claim)!r}]\n"
        "from dpassay.__main__ import main\n"
        "main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 3
    assert "please report it" in result.stderr


def test_without_the_generators_extra_one_line_says_what_to_install(claim: Path) -> None:
    code = (
        "import sys, dpassay.cli.app\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError('no torch', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        f"sys.exit(dpassay.cli.app.run_command(['assay', {str(claim)!r}]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stderr
    assert result.stderr == "dpassay: torch is not installed; generators need pip install '.[generate]'\n"


def test_a_fault_of_the_tool_does_not_look_like_a_verdict(claim: Path) -> None:
    code = (
        "import sys, dpassay.cli.app, dpassay.generators.registry\n"
        "def broken(path): raise ValueError('a bug')\n"
        "dpassay.generators.registry.read_claim = broken\n"
        "sys.exit(dpassay.cli.app.run_command(['assay', 'x.yaml']))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 3
    assert "Traceback" in result.stderr
    assert "please report" in result.stderr


@pytest.mark.slow
def test_quiet_prints_nothing(claim: Path, tmp_path: Path) -> None:
    result = in_a_process_of_its_own("generate", claim, "-o", tmp_path / "run", "--quiet")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_account_reads_one_ledger_and_several(claim: Path, tmp_path: Path) -> None:
    assert dpassay("generate", claim, "-o", tmp_path / "a", "-q").returncode == 0
    assert dpassay("generate", claim, "-o", tmp_path / "b", "-q").returncode == 0
    ledgers = [tmp_path / name / "private" / "ledger.sqlite" for name in "ab"]
    item = json.loads(dpassay("account", ledgers[0], "--delta", "1e-5", "--json").stdout)
    both = json.loads(dpassay("account", *ledgers, "--delta", "1e-5", "--json").stdout)
    basic = {
        name: next(row["value"] for row in rows["bounds"] if row["method"] == "basic")
        for name, rows in (("one", item), ("both", both))
    }
    # Basic composition of the same events twice costs exactly twice.
    assert basic["both"] == pytest.approx(2 * basic["one"], rel=1e-12)
    unknown = dpassay("account", ledgers[0], "--delta", "1e-5", "--method", "magic")
    assert unknown.returncode == 2
    assert len(unknown.stderr.splitlines()) == 1


def test_user_data_in_three_formats(claim: Path, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"body": f"My 5-digit key is {i:05d}", "number": str(i)} for i in range(28)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "d.csv").write_text("body,number\n" + "".join(f"{r['body']},{r['number']}\n" for r in rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "d.parquet")
    for suffix in ("jsonl", "csv", "parquet"):
        data = f"{{source: file, path: d.{suffix}, text: body, id: number}}"
        claim.write_text(CLAIM.replace("{source: builtin, name: keys}", data))
        result = dpassay("generate", claim, "-o", tmp_path / suffix, "-q")
        assert result.returncode == 0, result.stderr


@pytest.mark.grid
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(
    "line",
    [
        *("--help", "accountants --json", "no"),
        *(pytest.param(line, marks=pytest.mark.slow) for line in ("compare --help", "accountants", "schema assay")),
    ],
)
def test_a_closed_pipe_is_neither_a_verdict_nor_a_fault(line: str, stream: str) -> None:
    """As behind `| head`: exit code 141, as for other programs; 1 would be REFUTED."""
    reader, writer = os.pipe()
    os.close(reader)
    other = "stderr" if stream == "stdout" else "stdout"
    command = [sys.executable, "-m", "dpassay", *line.split()]
    ended = subprocess.run(command, **{stream: writer, other: subprocess.PIPE}, check=False)  # type: ignore[call-overload]
    os.close(writer)
    writes, expected = ("stderr", 2) if line == "no" else ("stdout", 0)
    assert ended.returncode == (141 if writes == stream else expected)
    assert bool(getattr(ended, other)) == (writes == other)
