"""Input of somebody who means harm, or whose file is broken: one short line, exit code 2, and nothing is written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from command import Result, plain, run

from dpassay.accounting.events import ParallelDpEvent
from dpassay.base import validate
from dpassay.base.errors import InputError
from dpassay.base.private_files import write_atomically
from dpassay.base.terminal import LONGEST, escaped, one_line
from dpassay.claims.read import LARGEST_FILE
from dpassay.data.records import read_rows
from dpassay.generators.registry import read_claim
from dpassay.mechanisms.private_inference.generator import MAX_SLOTS, PrivateInference

CLAIM = """name: tiny
data: {source: file, path: data.jsonl, text: text}
unit: record
mechanism: private_inference
parameters: {aggregate: median, clip: 10.0, temperature: 1.2, batch_size: 4, tokens: 2}
public: {records: 8}
guarantee: {type: pure_dp, epsilon: 100000.0}
"""
BOMB = "[&a [x,x,x,x,x,x,x,x,x], " + ", ".join(
    f"&{after} [{','.join([f'*{before}'] * 9)}]" for before, after in zip("abcdefg", "bcdefgh", strict=True)
)
AUG_PE = """name: votes
data: {source: builtin, name: notes}
mechanism: aug_pe
parameters:
  {noise_multiplier: 7.0, rounds: 1, synthetic: 1, variations: 1, ENDPOINT}
public: {records: 8}
guarantee: {type: gdp, mu: 3.0}
"""


def refused(result: Result, *says: str) -> str:
    """The one line that a command is refused with."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    (line,) = (line for line in plain(result.stderr).split("\n")[:-1] if not line.startswith('{"stage"'))
    assert len(line) <= LONGEST
    assert line.startswith("dpassay: ")
    for part in says:
        assert part in line
    return line


def claim(folder: Path, text: str = CLAIM) -> Path:
    path = folder / "claim.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    (folder / "data.jsonl").write_text("".join(json.dumps({"text": f"note {i}"}) + "\n" for i in range(8)))
    return path


UNREADABLE = {
    "a date that is in no calendar": "2024-02-30",
    "a number of thousands of digits": "9" * 5000,
    "nested too deeply, open": "[" * 3000,
    "nested too deeply, closed": "[" * 3000 + "]" * 3000,
    "nested mappings": "{a: " * 1500 + "1" + "}" * 1500,
    "an alias of what holds it": "&a [*a]",
    "a bomb of aliases": BOMB + "]",
    "a tag of Python": "!!python/object/apply:os.system [ls]",
    "a number that is none": "!!float x",
    "an empty number": "!!int ''",
    "a time that is none": "!!timestamp x",
    "a NUL": "\0",
    "half a character": "\ud800",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_yaml_that_cannot_be_read_is_one_line(name: str, tmp_path: Path) -> None:
    path = claim(tmp_path, CLAIM.replace("unit: record", f"unit: {UNREADABLE[name]}"))
    refused(run("account", path), str(path))


def test_a_file_that_is_too_large_is_not_read_as_a_claim(tmp_path: Path) -> None:
    path = claim(tmp_path, CLAIM + "# " + "x" * LARGEST_FILE)
    refused(run("account", path), f"larger than {LARGEST_FILE} bytes")
    endless = tmp_path / "endless.yaml"
    endless.symlink_to("/dev/zero")
    refused(run("account", endless), "larger than")


def test_a_key_that_is_twice_in_a_json_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.jsonl").write_text('{"text": "SECRET", "text": "b"}\n')
    line = refused(
        run("centres", tmp_path / "twice.jsonl", "-o", tmp_path / "c.safetensors"), "line 1: has a repeated key"
    )
    assert "SECRET" not in line


def test_a_row_with_nested_repeated_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.jsonl").write_text('{"text": "a", "more": {"b": 1, "b": 2}}\n')
    refused(run("centres", tmp_path / "twice.jsonl", "-o", tmp_path / "c.safetensors"), "has a repeated key")


ROWS = "".join(json.dumps({"text": f"note {i}", "included": i % 2}) + "\n" for i in range(8))
OVERWRITING = {
    "centres": ("centres", "DATA", "--count", "2", "-o", "DATA"),
    "utility, the real file": ("utility", "OTHER", "--real", "DATA", "-o", "DATA"),
    "utility, the synthetic file": ("utility", "DATA", "--real", "OTHER", "-o", "DATA"),
    "table utility, the real file": ("table", "utility", "OTHER", "--real", "DATA", "--schema", "OTHER", "-o", "DATA"),
    "table utility, the schema": ("table", "utility", "OTHER", "--real", "OTHER", "--schema", "DATA", "-o", "DATA"),
    "audit text": ("audit", "text", "OTHER", "--source", "DATA", "--holdout", "OTHER", "-o", "DATA"),
    "audit table": ("audit", "table", "OTHER", "--source", "OTHER", "--holdout", "DATA", "-o", "DATA"),
    "audit plan": ("audit", "plan", "--like", "DATA", "-o", "DATA"),
    "audit runs plan": ("audit", "runs", "plan", "--like", "DATA", "-o", "DATA"),
    "audit membership": ("audit", "membership", "scores", "DATA", "-o", "DATA"),
    "audit membership, candidates": ("audit", "membership", "text", "DATA", "--synthetic", "OTHER", "-o", "DATA"),
    "audit secrets": (
        *("audit", "secrets", "--p", ".01", "--r", ".3", "--occurrences", "8", "--sampling-probability", ".1"),
        *("-o", "DATA"),
    ),
    "generate, the claim": ("generate", "CLAIM", "-o", "CLAIM"),
    "generate, the data": ("generate", "CLAIM", "-o", "CLAIM_DATA"),
    "assay": ("assay", "CLAIM", "-o", "CLAIM"),
}


@pytest.mark.parametrize("name", OVERWRITING)
@pytest.mark.parametrize("linked", [False, True])
def test_no_output_replaces_an_input(name: str, linked: bool, tmp_path: Path) -> None:
    names = {"CLAIM": claim(tmp_path), "CLAIM_DATA": tmp_path / "data.jsonl"}
    for word in ("DATA", "OTHER"):
        names[word] = tmp_path / f"{word.lower()}_rows.jsonl"
        names[word].write_text(ROWS)
    *given, output = OVERWRITING[name]
    target = names[output]
    if linked:
        target = tmp_path / "other-name.jsonl"
        os.link(names[output], target)
    before = _contents(tmp_path)
    refused(run(*(names.get(word, word) for word in given), target))
    assert _contents(tmp_path) == before


def test_a_run_does_not_write_beside_the_data_that_it_reads(tmp_path: Path) -> None:
    (tmp_path / "run" / "private").mkdir(parents=True)
    path = claim(tmp_path, CLAIM.replace("data.jsonl", "run/private/synthetic.jsonl"))
    (tmp_path / "run" / "private" / "synthetic.jsonl").write_text(ROWS)
    refused(run("generate", path, "-o", tmp_path / "run"), "its folder private holds")


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("records: 8", "records: 2147483648", "slots"),
        ("records: 8", "records: 1" + "0" * 400, "records must be"),
        ("tokens: 2", "tokens: 1000000000", "tokens"),
        ("tokens: 2", "tokens: 1" + "0" * 100, "tokens must be"),
        ("batch_size: 4", "batch_size: 1" + "0" * 400, "batch_size must be"),
    ],
)
def test_sizes_that_cannot_be_meant_are_refused_before_anything_is_made(
    old: str, new: str, says: str, tmp_path: Path
) -> None:
    refused(run("account", claim(tmp_path, CLAIM.replace(old, new))), says)


def test_the_plan_of_many_slots_holds_one_event() -> None:
    mechanism = PrivateInference(
        aggregate="median", clip=10.0, temperature=1.2, batch_size=1, tokens=4, records=MAX_SLOTS
    )
    plan = mechanism.plan()
    assert isinstance(plan, ParallelDpEvent)
    assert len(plan.events) == MAX_SLOTS
    assert len({id(part) for part in plan.events}) == 1


HUGE = ("9223372036854775808", "1" + "0" * 30, "1" * 400, "1" * 5000, "nan", "inf", "-1", "-0.0", "1e308", "5e-324")
NUMBERS = {
    "dp-sgd steps": "compare dp-sgd --noise-multiplier 4 --sampling-probability .1 --delta 1e-5 --method rdp --steps",
    "gaussian count": "compare gaussian --noise-multiplier 4 --delta 1e-5 --method pld --count",
    "gaussian noise": "compare gaussian --delta 1e-5 --method pld --noise-multiplier",
    "secret occurrences": "compare secret --sampling-probability .1 --sigma 2 --p 1e-3 --occurrences",
    "secret rounds": "compare secret --occurrences 8 --sampling-probability .1 --sigma 2 --p 1e-3 --rounds",
    "vectors layers": "compare vectors --clip 1 --records 100 --epsilon 5 --delta 1e-5 --layers",
    "calibrate steps": "calibrate dp-sgd --target-epsilon 5 --delta .1 --sampling-probability .1 --method rdp --steps",
    "calibrate rounds": "calibrate secret --target-r .01 --p 1e-3 --occurrences 8 --sampling-probability .1 --rounds",
    "audit runs": "audit runs plan --like no.csv -o no --runs",
    "audit occurrences": "audit secrets --p .01 --r .3 --sampling-probability .1 --sigma 4 --occurrences",
}


@pytest.mark.grid("name", "number")
@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_cannot_be_meant_are_answered_or_refused(
    name: str, number: str, recwarn: pytest.WarningsRecorder
) -> None:
    result = run(*NUMBERS[name].split(), number, "--json")
    if result.returncode == 2:
        refused(result)
    else:
        assert result.returncode in (0, 1, 4), result.stderr
        assert "Traceback" not in result.stderr
    assert not list(recwarn)


def test_a_validator_names_a_number_beyond_the_floats() -> None:
    for check in (validate.positive, validate.finite, validate.probability, validate.integer):
        with pytest.raises(ValueError, match="steps must be"):
            check(steps=10**400)
    with pytest.raises(ValueError, match="steps must be at most 5, not 6"):
        validate.integer(maximum=5, steps=6)


RED, TURNED = "\x1b[31mred", "\u202egnp.exe"


@pytest.mark.grid("command", "name")
@pytest.mark.parametrize(
    "name", [RED, TURNED, "a\nb", "\x9b31m", "a\rb", "\u2028", "x" * 100_000, "caf\udce9", "a\x00b"]
)
@pytest.mark.parametrize(
    "command", ["account", "centres", "audit bound", "audit runs bound", "accountants --adjacency", "schema"]
)
def test_what_is_given_reaches_no_terminal_raw(command: str, name: str, tmp_path: Path) -> None:
    more = ("-o", tmp_path / "c.safetensors") if command == "centres" else ()
    line = refused(run(*command.split(), name, *more))
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u202e\ud800-\udfff]", line)


def test_names_from_files_are_escaped_where_results_are_printed(tmp_path: Path) -> None:
    for start, name in enumerate(("seen", "unseen", "made")):
        rows = [{"id": i + 8 * start, RED: "xy"[i % 2], "[/]": 2 * i} for i in range(8)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {name: tmp_path / f"{name}.jsonl" for name in ("seen", "unseen", "made")}
    output = tmp_path / f"{RED}.json"
    more = ("--holdout", files["unseen"], "--secret", RED, "-o", output)
    result = run("audit", "table", files["made"], "--source", files["seen"], *more)
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert "\\x1b[31mred.json" in result.stdout


def test_a_line_keeps_its_beginning_and_its_end() -> None:
    line = one_line(f"{'a' * 400}\n{'b' * 400} give another")
    assert len(line) <= LONGEST
    assert line.startswith("aaa")
    assert line.endswith("bbb give another")
    assert escaped(f"{RED}é\u202f𝕏\n") == "\\x1b[31mredé\u202f𝕏\n"


KEYED = "endpoint: {url: 'https://example.com/v1', model: m, api_key_env: AWS_SECRET_ACCESS_KEY}"
AWAY = "endpoint: {url: 'http://example.com/v1', model: m}"
HERE_KEYED = "endpoint: {url: 'http://127.0.0.1:9/v1', model: m, api_key_env: AWS_SECRET_ACCESS_KEY}"


@pytest.mark.parametrize("endpoint", [KEYED, AWAY, HERE_KEYED])
@pytest.mark.parametrize("command", ["assay", "generate"])
def test_a_claim_alone_sends_no_key_anywhere(
    command: str, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[Any] = []
    monkeypatch.setattr("dpassay.mechanisms.models.endpoint.post", lambda *given, **more: posted.append(given))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    path = claim(tmp_path, AUG_PE.replace("ENDPOINT", endpoint))
    line = refused(run(command, path, "-o", tmp_path / "run"), "--allow-endpoint http")
    assert ("AWS_SECRET_ACCESS_KEY" in line) == (endpoint is not AWAY)
    other = ("--allow-endpoint", "https://example.org/v1")
    refused(run(command, path, "-o", tmp_path / "run", *other), "--allow-endpoint http")
    assert not (tmp_path / "run").exists()
    assert not posted


def test_an_endpoint_that_was_allowed_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    path = claim(tmp_path, AUG_PE.replace("ENDPOINT", KEYED))
    allowed = ("--allow-endpoint", "https://example.com/v1/")
    refused(run("generate", path, "-o", tmp_path / "run", *allowed), "AWS_SECRET_ACCESS_KEY has no API key")


def test_an_endpoint_of_this_machine_without_a_key_needs_no_consent(tmp_path: Path) -> None:
    asserted: Any = read_claim(claim(tmp_path, AUG_PE.replace("ENDPOINT", HERE_KEYED.partition(", api")[0] + "}")))
    asserted.check_allowed(None)
    with pytest.raises(InputError):
        read_claim(claim(tmp_path, AUG_PE.replace("ENDPOINT", KEYED))).check_allowed(None)  # type: ignore[attr-defined]


def test_a_folder_named_like_the_home_is_one_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyarrow takes a leading ``~`` for the home folder, where the rest of the run would not be."""
    from dpassay.base.private_files import write_parquet

    monkeypatch.chdir(tmp_path)
    Path("~").mkdir()
    write_parquet(Path("~") / "rows.parquet", [("a",)], {"text": "string"})
    assert [row["text"] for _, row in read_rows(Path("~") / "rows.parquet")] == ["a"]
    assert (tmp_path / "~" / "rows.parquet").is_file()


@pytest.mark.parametrize("delta", ["5e-324", "1e-310"])
def test_the_least_delta_has_an_answer(delta: str) -> None:
    line = f"compare gaussian --noise-multiplier 5 --count 2 --delta {delta} --method lattice --json"
    result = run(*line.split())
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("noise", ["1e300", "1e-300"])
def test_noise_whose_square_is_no_float_has_an_answer(noise: str, recwarn: pytest.WarningsRecorder) -> None:
    line = f"compare gaussian --noise-multiplier {noise} --delta 1e-5 --method rdp --json"
    result = run(*line.split())
    assert result.returncode == 0, result.stderr
    assert not list(recwarn)


@pytest.mark.slow
def test_a_secret_with_the_least_noise_is_refused_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    line = "calibrate secret --target-r .01 --p 1e-3 --weights .9,.1 --sigma 5e-324 --find rounds"
    refused(run(*line.split()), "no rounds in the bracket")
    assert not list(recwarn)


@pytest.mark.parametrize("kind", ["pipe", "link to a device"])
def test_no_device_and_no_pipe_is_replaced_by_a_file(kind: str, tmp_path: Path) -> None:
    """A file is written beside and renamed; as root, `-o /dev/null` took the place of the device of all programs."""
    special = tmp_path / "special.svg"
    if kind == "pipe":
        os.mkfifo(special)
    else:
        special.symlink_to("/dev/null")
    before = special.lstat()
    options = ["--noise-multiplier", "1", "--count", "1", "--delta", "1e-5", "--method", "gdp", "-o", special]
    refused(run("compare", "gaussian", *options), "is a device or a pipe", "name a regular file")
    assert special.lstat() == before
    with pytest.raises(InputError, match="is a device or a pipe"):
        write_atomically(special, "text")
    assert special.lstat().st_ino == before.st_ino
    assert sorted(path.name for path in tmp_path.iterdir()) == ["special.svg"]
