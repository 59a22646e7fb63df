"""dpassay and the stand-alone verifier agree with all conformance cases, which are as their script writes them."""

from __future__ import annotations

import collections
import importlib
import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra sign")

ROOT = Path(__file__).resolve().parents[2] / "conformance"


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """The scripts, which import each other by their bare names; these are forgotten after."""
    known, path = set(sys.modules), list(sys.path)
    sys.path[:0] = [str(ROOT), str(ROOT / "wrappers")]
    names = ("run", "protocol", "make_cases", "certificate_cases", "check_py", "dpassay_py", "dp_accounting_py")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(ROOT)):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _no_anchor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def different(scripts: Any, tool: Any, kind: str) -> list[tuple[str, int, str]]:
    """The cases with whose expectation a tool does not agree, or where it names another file."""
    results = []
    for case in scripts.run.cases():
        if case.name.startswith(f"{kind}/"):
            code, line = scripts.protocol.answer(tool, case.arguments())
            if case.judged(code, line) != scripts.run.AGREES or case.about.get("at_fault", "") not in line:
                results.append((case.name, code, line))
    return results


@pytest.mark.parametrize("wrapper", ["dpassay_py", "check_py"])
def test_certificates_are_accepted_and_rejected_as_expected(scripts: Any, wrapper: str) -> None:
    assert different(scripts, getattr(scripts, wrapper).TOOL, "certificate") == []


def test_certified_intervals_meet_the_exact_numbers(scripts: Any) -> None:
    assert different(scripts, scripts.dpassay_py.TOOL, "epsilon") == []


def test_the_other_library_agrees_where_its_accountants_are_known_to_be_right(scripts: Any) -> None:
    cases = {case.name.rpartition("/")[2]: case for case in scripts.run.cases() if case.group == "epsilon/accept"}
    for name in ("gaussian", "laplace", "sampled-gaussian", "gaussian-composed"):
        code, line = scripts.protocol.answer(scripts.dp_accounting_py.TOOL, cases[name].arguments())
        assert cases[name].judged(code, line) == scripts.run.AGREES, (name, line)
    code, _ = scripts.protocol.answer(scripts.dp_accounting_py.TOOL, cases["claim-gaussian"].arguments())
    assert code == scripts.protocol.UNSUPPORTED


def test_cases_are_as_the_script_writes_them(scripts: Any, tmp_path: Path) -> None:
    assert scripts.make_cases.differences(tmp_path) == []


def test_there_are_cases_of_each_group_and_each_says_what_it_tests(scripts: Any) -> None:
    every = scripts.run.cases()
    counted = collections.Counter(case.group for case in every)
    least = {"certificate/accept": 40, "certificate/reject": 60, "epsilon/accept": 15, "epsilon/reject": 10}
    assert counted.keys() == least.keys()
    assert all(counted[group] >= number for group, number in least.items()), counted
    for case in every:
        assert case.about["expected"] == case.group.rpartition("/")[2]
        assert case.about["about"].endswith((".", "?")), case.name
    size = sum(path.lstat().st_size for path in ROOT.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert size <= 1_300_000, size


def test_the_script_imports_nothing_of_dpassay_and_writes_numbers_as_the_standard_prints_them(scripts: Any) -> None:
    for name in ("make_cases", "certificate_cases", "accepted_certificates", "rejected_certificates", "epsilon_cases"):
        source = (ROOT / f"{name}.py").read_text(encoding="utf-8")
        assert "import dpassay" not in source
        assert "from dpassay" not in source
    for bits, text in scripts.certificate_cases.RFC_8785.items():
        (value,) = struct.unpack(">d", bytes.fromhex(bits))
        assert scripts.certificate_cases.number(value) == text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1 2", "agrees"),
        ("2", "agrees"),
        ("inf", "agrees"),
        ("0 1.5", "agrees"),
        ("1.4", "differs"),
        ("1.7 3", "differs"),
        ("nan", "differs"),
        ("1 nan", "differs"),
        ("", "differs"),
        ("about 2", "differs"),
    ],
)
def test_an_answer_must_meet_the_interval(scripts: Any, line: str, expected: str) -> None:
    case = scripts.run.Case("epsilon/accept/x", {"expected": "accept", "interval": [1.5, 1.6]})
    assert case.judged(0, line) == expected
    assert case.judged(1, line) == "differs"
    assert case.judged(3, line) == "not supported"


def test_a_failure_is_no_rejection(scripts: Any) -> None:
    def broken(*_: object) -> str:
        raise KeyError("files")

    case = scripts.run.Case("certificate/reject/x", {"expected": "reject"})
    code, line = scripts.protocol.answer(scripts.protocol.Tool(str, verify=broken), case.arguments())
    assert (code, line) == (scripts.protocol.BROKEN, "KeyError: 'files'")
    assert case.judged(code, line) == "differs"


def test_a_wrapper_answers_one_command_or_many() -> None:
    wrapper = [sys.executable, str(ROOT / "wrappers" / "check_py.py")]
    commands = [
        ["verify", str(ROOT / "certificate" / group / name / "release")]
        for group, name in (("accept", "unsigned"), ("reject", "folder-more"))
    ]
    lines = "".join(json.dumps(command) + "\n" for command in commands)
    whole = subprocess.run([*wrapper, "batch"], input=lines, capture_output=True, text=True, check=True).stdout
    answers = [json.loads(line) for line in whole.splitlines()]
    assert answers == [[0, "1 files"], [1, "more.jsonl: is not in the certificate"]]
    one = subprocess.run([*wrapper, *commands[1]], capture_output=True, text=True, check=False)
    assert [one.returncode, one.stdout] == [1, "more.jsonl: is not in the certificate\n"]
