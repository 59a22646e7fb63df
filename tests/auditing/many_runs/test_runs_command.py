"""`dpassay audit runs` with generators that do everything wrong that generators do, interrupted and resumed."""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import multiprocessing
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command
import pyarrow
import pyarrow.parquet
import pytest
import toy_functions
import toy_generator

from dpassay.accounting.guarantees import PureDP
from dpassay.attacks.black_box.output_features import FAILED
from dpassay.auditing.many_runs import run as job
from dpassay.auditing.many_runs.files import read_plan
from dpassay.audits.games import many_runs, many_runs_power
from dpassay.testing import assert_never_exceeds

TOY = toy_generator.__file__
PYTHON = f"{shlex.quote(sys.executable)} -I -S {shlex.quote(TOY)} {{input}} {{output}}"
COPY = "cp {input} {output}"


@pytest.fixture(autouse=True)
def fewer_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_runs_power, "REPETITIONS", 20)
    monkeypatch.syspath_prepend(str(Path(TOY).parent))


def dpassay(*arguments: object) -> command.Result:
    result = command.run("audit", "runs", *arguments)
    assert "SECRET" not in result.stdout + result.stderr
    return result


def done(*arguments: object, code: int = 0) -> dict[str, Any]:
    """What a command prints as JSON."""
    result = dpassay(*arguments, "--json")
    assert result.returncode == code, (result.stdout, result.stderr)
    outcome: dict[str, Any] = json.loads(result.stdout)
    return outcome


def refused(*arguments: object) -> str:
    """The one line that a command is refused with."""
    result = dpassay(*arguments, "-q")
    assert result.returncode == 2, (result.stdout, result.stderr)
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def people(count: int = 30) -> list[dict[str, Any]]:
    cities = ["north", "south", "SECRET-town"]
    return [
        {"age": 20 + 7 * index % 40, "city": cities[index % 2 + (index == 5)], "note": f"a b c d {'ef'[index % 2]}"}
        for index in range(count)
    ]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            out = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            out.writeheader()
            out.writerows(rows)
    return path


def plan(folder: Path, *more: object, suffix: str = ".csv") -> Path:
    """A plan of 40 runs at ε = 0.1."""
    audit, settings = folder / "audit", ("--epsilon", "0.1", "--runs", "40") if "--runs" not in more else ()
    like = write(folder / f"people{suffix}", people())
    done("plan", "--like", like, "-o", audit, *settings, *more)
    return audit


def lines(audit: Path) -> list[dict[str, Any]]:
    """The runs that are recorded."""
    rows = [json.loads(line) for line in (audit / "private" / "results.jsonl").read_text().splitlines()]
    return [row for row in rows if "phase" in row]


def numbers(audit: Path) -> list[tuple[Any, ...]]:
    return [(row["arm"], row["phase"], row["data"], row["number"]) for row in lines(audit)]


@pytest.mark.grid
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_whole_audit_by_command(tmp_path: Path, suffix: str, workers: int) -> None:
    """In a folder with a space. A generator that copies is refuted."""
    home = tmp_path / "my audits"
    home.mkdir()
    audit = plan(home, suffix=suffix)
    made = done("run", audit, "--command", COPY, "--workers", workers)
    assert made["finished"] is True
    assert made["runs"] == len(lines(audit)) <= 40
    assert len(set(numbers(audit))) == made["runs"]
    result = done("bound", audit, code=1)
    assert result["refuted"] is True
    assert result["audit"]["details"]["runs"] == made["runs"]
    done("report", audit)
    assert not (audit / "private" / "work").exists()
    assert not (audit / "private" / "failures").exists()
    assert all(path.stat().st_mode & 0o077 == 0 for path in (audit / "private").rglob("*"))


@pytest.mark.slow
def test_the_number_of_workers_does_not_change_results(tmp_path: Path) -> None:
    """With the seeds of the plan and all runs made."""
    first = plan(tmp_path, "--runs", "40", "--neighbors", "ordinary", "--neighbors", "new_category")
    shutil.copytree(first, tmp_path / "second")
    for audit, workers in ((first, 1), (tmp_path / "second", 3)):
        done("run", audit, "--command", f"{PYTHON} --do noisy --seed {{seed}}", "--workers", workers, "--all")
    left, right = (
        {tuple(row.values())[:4]: row["features"] for row in lines(audit)} for audit in (first, tmp_path / "second")
    )
    assert left == right
    assert len(left) == 40


def test_no_run_is_made_twice_if_the_command_is_given_again(tmp_path: Path) -> None:
    audit = plan(tmp_path)
    settings = ("run", audit, "--command", COPY)
    made = done(*settings)
    again = done(*settings)
    assert again == made


def test_kept_outputs_are_those_of_the_runs(tmp_path: Path) -> None:
    audit = plan(tmp_path)
    made = done("run", audit, "--command", COPY, "--keep")
    kept = sorted(path.name for path in (audit / "private" / "outputs").iterdir())
    assert len(kept) == made["runs"]
    assert kept == sorted(f"claimed-{item[1]}-{item[2]:02d}-{item[3]:05d}.csv" for item in numbers(audit))


def wait_for(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.grid
@pytest.mark.usefixtures("interruptible")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="asks /proc which processes are alive")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_audit_resumes_with_the_same_runs(tmp_path: Path, how: signal.Signals) -> None:
    """No run is lost or counted twice, and an interruption ends the commands and what they started.

    Runs wait once some are made, so that there is always something to interrupt.
    """
    whole = plan(tmp_path, "--runs", "20", "--neighbors", "ordinary", "--neighbors", "new_category")
    cut, log, go = tmp_path / "cut", tmp_path / "log", tmp_path / "go"
    shutil.copytree(whole, cut)
    files = f"--log {shlex.quote(str(log))} --go {shlex.quote(str(go))}"
    generator = f"{PYTHON} --do child --seconds 0.05 --seed {{seed}} --most 6 {files}"
    settings = ["--command", generator, "--workers", "2", "--all"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dpassay", "audit", "runs", "run", str(cut), *settings, "-q"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: (cut / "private" / "results.jsonl").exists() and len(lines(cut)) >= 3)
    before = len(lines(cut))
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    assert len(lines(cut)) >= before
    pids = [pid for line in log.read_text().splitlines() for pid in json.loads(line)["pids"]]
    if how is not signal.SIGKILL:
        assert process.returncode == 128 + how
        assert how is signal.SIGTERM or "interrupted; run the same command again to resume" in errors
        wait_for(lambda: not any(map(alive, pids)), 5)
    else:
        assert process.returncode == -signal.SIGKILL
        for pid in filter(alive, pids):  # whoever is killed ends nobody
            os.kill(pid, signal.SIGKILL)
    go.touch()
    # A child that was being started when its parent was killed holds the parent's lock for a moment.
    wait_for(lambda: dpassay("run", cut, *settings).returncode == 0, 30)
    done("run", whole, *settings)
    assert len(set(numbers(cut))) == len(numbers(cut)) == len(numbers(whole))
    features = [{tuple(row.values())[:4]: row["features"] for row in lines(audit)} for audit in (cut, whole)]
    assert features[0] == features[1]
    first, second = (done("bound", audit)["audit"] for audit in (cut, whole))
    assert first == second


@pytest.mark.slow
def test_twenty_kills_lose_and_double_no_run(tmp_path: Path) -> None:
    """Each kill comes when one more run was recorded; the bound is that of an audit that nobody disturbed."""
    whole = plan(tmp_path, "--runs", "100", "--neighbors", "ordinary")
    cut = tmp_path / "cut"
    shutil.copytree(whole, cut)
    settings = ["--command", f"{PYTHON} --do slow --seconds 0.1 --seed {{seed}}", "--workers", "2", "--all"]
    results, kills, kept = cut / "private" / "results.jsonl", 0, list[dict[str, Any]]()
    for _ in range(20):
        process = subprocess.Popen(
            [sys.executable, "-m", "dpassay", "audit", "runs", "run", str(cut), *settings, "-q"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = len(kept)
        wait_for(lambda: results.exists() and results.read_bytes().count(b"\n") > before + 1, 120)  # noqa: B023
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        rows = [row for row in results.read_text().splitlines(keepends=True) if row.endswith("\n")]
        collected = [row for row in map(json.loads, rows) if "phase" in row]
        assert collected[: len(kept)] == kept, "what is recorded never changes"
        kept = collected
    assert kills == 20
    wait_for(lambda: dpassay("run", cut, *settings).returncode == 0, 120)
    done("run", whole, *settings)
    assert len(set(numbers(cut))) == len(numbers(cut)) == len(numbers(whole))
    features = [{tuple(row.values())[:4]: row["features"] for row in lines(audit)} for audit in (cut, whole)]
    assert features[0] == features[1]
    first, second = (done("bound", audit)["audit"] for audit in (cut, whole))
    assert first == second


@pytest.mark.grid
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_is_raised_between_runs_only(
    number: signal.Signals, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where locks are held, an exception would leave them locked, and the audit would never end."""
    audit, after, add = plan(tmp_path), [], many_runs.ManyRuns.add

    def add_and_signal(self: Any, *arguments: Any) -> None:
        os.kill(os.getpid(), number)
        after.append(len(lines(audit)))  # what follows the signal is done
        add(self, *arguments)

    before = {item: signal.getsignal(item) for item in (signal.SIGINT, signal.SIGTERM)}
    with monkeypatch.context() as patched:
        patched.setattr(many_runs.ManyRuns, "add", add_and_signal)
        with pytest.raises(error):
            job.run(audit, function="toy_functions:copy")
    assert after
    assert {item: signal.getsignal(item) for item in before} == before
    assert len(lines(audit)) >= len(after)
    assert done("run", audit, "--function", "toy_functions:copy")["finished"] is True


def test_a_line_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    audit = plan(tmp_path)
    settings = ("run", audit, "--command", COPY)
    made = done(*settings)
    results = audit / "private" / "results.jsonl"
    content = results.read_bytes()
    before = {tuple(row.values())[:4]: row["features"] for row in lines(audit)}
    for left in (len(content) - 1, len(content) - 200, content.index(b"\n") + 5, 7, 0):
        results.write_bytes(content[:left])
        assert done(*settings)["runs"] == made["runs"]
        assert {tuple(row.values())[:4]: row["features"] for row in lines(audit)} == before


WRONG: dict[str, tuple[list[str], str]] = {
    "no such command": (
        ["--command", "no-such-generator {input} {output}"],
        "no-such-generator: cannot be run: no such",
    ),
    "a folder": (["--command", "/ {input} {output}"], "cannot be run: permission denied"),
    "no output in the command": (["--command", "cp {input}"], "has no {output}"),
    "no input in the command": (["--command", "cp {output}"], "has no {input}"),
    "an open quote": (["--command", "cp 'x {input} {output}"], "cannot be split into words"),
    "an empty command": (["--command", " "], "the command is empty"),
    "neither": ([], "give either --command"),
    "both": (["--command", "cp {input} {output}", "--function", "toy_functions:copy"], "give either --command"),
    "it fails": (["--command", f"{PYTHON} --do fail"], "the command fails on the data (exit code 3)"),
    "it writes nothing": (["--command", f"{PYTHON} --do nothing"], "its output cannot be read: there is no such file"),
    "it writes a folder": (
        ["--command", f"{PYTHON} --do folder"],
        "its output cannot be read: is a folder; name a file",
    ),
    "it writes garbage": (
        ["--command", f"{PYTHON} --do garbage"],
        "its output cannot be read: begins with the mark of UTF-16",
    ),
    "it takes too long": (
        ["--command", f"{PYTHON} --do child --seconds 60", "--timeout", "0.5"],
        "it was stopped after 0.5 s",
    ),
    "a word that is no path": (["--command", f"cp {{input}} {{output}} {'x' * 5000}"], "the command fails on the data"),
    "a control that fails": (
        ["--command", COPY, "--unprotected", f"{PYTHON} --do fail"],
        "the command fails on the data (exit code 3)",
    ),
    "no workers": (["--command", "cp {input} {output}", "--workers", "0"], "workers must be"),
    "no time": (["--command", "cp {input} {output}", "--timeout", "0"], "timeout must be"),
    "a time that is no number": (["--command", "cp {input} {output}", "--timeout", "nan"], "timeout must be"),
    "no module": (["--function", "no_such_module:f"], "cannot be imported"),
    "no function of a module": (["--function", "toy_functions:f"], "cannot be imported"),
    "no colon": (["--function", "toy_functions"], "must be given as module:function"),
    "a number": (["--function", "toy_functions:number"], "is no function"),
    "a function that fails": (
        ["--function", "toy_functions:fails"],
        "fails on the data (RuntimeError), in each of 3 tries; its messages are in",
    ),
    "a function that leaves": (
        ["--function", "toy_functions:leaves"],
        "fails on the data (SystemExit), in each of 3 tries; its messages are in",
    ),
    "a function that returns names": (["--function", "toy_functions:names"], "must return records, as dicts"),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", WRONG)
def test_a_generator_that_cannot_run_is_one_line(name: str, tmp_path: Path) -> None:
    """No run of it is recorded, and a corrected one begins in the same folder."""
    audit = plan(tmp_path)
    settings, says = WRONG[name]
    assert says in refused("run", audit, *settings)
    if name != "a control that fails":
        assert not (audit / "private" / "results.jsonl").exists() or lines(audit) == []
        assert done("run", audit, "--command", COPY)["finished"] is True


@pytest.mark.parametrize(("failing", "runs"), [(2, True), (3, False)])
def test_a_generator_that_fails_by_chance_is_tried_again(failing: int, runs: bool, tmp_path: Path) -> None:
    """Its first runs fail, so many of them; each leaves a file in `tried`."""
    audit, tried = plan(tmp_path), tmp_path / "tried"
    tried.mkdir()
    script = tmp_path / "by_chance.sh"
    script.write_text(
        f'touch "{tried}/$$"\n[ "$(ls "{tried}" | wc -l)" -gt {failing} ] || exit 5\ncp "$1" "$2"\n', encoding="utf-8"
    )
    command = f"sh {shlex.quote(str(script))} {{input}} {{output}}"
    if runs:
        made = done("run", audit, "--command", command)
        assert f"failed in {failing} of {failing + 1} trial runs (exit code 5)" in " ".join(made["notes"])
        assert not any(row["features"][""][FAILED] for row in lines(audit))
    else:
        assert "(exit code 5), in each of 3 tries" in refused("run", audit, "--command", command)
        assert len(list(tried.iterdir())) == 3


@pytest.mark.slow
def test_runs_that_fail_later_are_counted(tmp_path: Path) -> None:
    """On D′ with a record more, the generator always fails: no such pair is tested, unless that is asked for."""
    generator = f"{PYTHON} --do crowded --most 30 --seed {{seed}}"
    for more, code, tested in (((), 4, False), (("--failures",), 1, True)):
        home = tmp_path / str(code)
        home.mkdir()
        audit = plan(home, "--runs", "60", "--epsilon", "0.1", "--neighbors", "ordinary", *more)
        done("run", audit, "--command", generator)
        result = done("bound", audit, code=code)["audit"]
        assert result["details"]["failing"] == ([] if tested else ["ordinary"])
        assert bool(result["bounds"]) is tested
        if tested:
            assert result["details"]["failures"] == {"on_data": 0, "on_neighbor": result["details"]["rounds"]}
        logs = list((audit / "private" / "failures").iterdir())
        assert 0 < len(logs) <= 40
        assert "SECRET" in logs[0].read_text()  # what it printed is kept where only the owner reads it
        assert logs[0].stat().st_mode & 0o077 == 0


@pytest.mark.slow
@pytest.mark.parametrize("written", [None, 'age,city,note\n1,a,b\n"SECRET'], ids=["nothing", "no CSV"])
def test_an_output_that_cannot_be_read_is_a_failure(tmp_path: Path, written: str | None) -> None:
    """Also where it cannot be read beyond some row; and what is recorded of the run is read again. D has 30 records."""
    audit = plan(tmp_path, "--failures", "--runs", "40", "--epsilon", "0.1", "--neighbors", "ordinary")
    generator = tmp_path / "unreadable.py"
    generator.write_text(
        "import pathlib, shutil, sys\nsource, target = map(pathlib.Path, sys.argv[1:])\n"
        "if len(source.read_text().splitlines()) == 31:\n    shutil.copyfile(source, target)\n"
        + ("" if written is None else f"else:\n    target.write_text({written!r})\n")
    )
    done("run", audit, "--command", f"{sys.executable} {generator} {{input}} {{output}}")
    assert {row["data"]: row["features"][""]["failed"] for row in lines(audit)} == {0: 0.0, 1: 1.0}
    assert all(0 <= row["seconds"] < 60 for row in lines(audit))
    assert done("bound", audit, code=1)["refuted"] is True


def test_a_command_that_writes_to_its_input_spoils_no_other_run(tmp_path: Path) -> None:
    audit, log = plan(tmp_path), tmp_path / "log"
    done("run", audit, "--command", f"{PYTHON} --do overwrite --log {shlex.quote(str(log))}", "--workers", "2")
    read = [json.loads(line)["sha256"] for line in log.read_text().splitlines()]
    assert set(read) <= set(json.loads((audit / "private" / "plan.json").read_text())["data_sets"])
    assert len(read) == len(lines(audit)) + 1  # once to try
    for path in (audit / "private" / "data").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() in read or path.name


def test_another_command_is_refused(tmp_path: Path) -> None:
    audit = plan(tmp_path)
    done("run", audit, "--command", COPY)
    content = (audit / "private" / "results.jsonl").read_bytes()
    for other in (["--command", f"{PYTHON} --do noisy"], ["--function", "toy_functions:copy"]):
        assert "made by another command" in refused("run", audit, *other)
    assert "made by another command" in refused("score", audit)
    assert (audit / "private" / "results.jsonl").read_bytes() == content


@pytest.mark.slow
@pytest.mark.parametrize("how", ["command", "function"])
def test_a_generator_that_was_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Or the runs of two generators would be counted as those of one."""
    audit, file = plan(tmp_path), tmp_path / "changing.py"
    code = "import shutil, sys\n\n\ndef same(rows, seed):\n    return rows\n\n\n"
    code += "if __name__ == '__main__':\n    shutil.copyfile(*sys.argv[1:])\n"
    file.write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    given = ("--command", f"{sys.executable} {file} {{input}} {{output}}")
    if how == "function":
        given = ("--function", "changing:same")
    done("run", audit, *given)
    done("run", audit, *given)
    file.write_text(f"{code}# changed\n")
    assert "by files that were changed since" in refused("run", audit, *given)


def test_data_sets_that_are_no_neighbours_are_refused(tmp_path: Path) -> None:
    """A plan that was changed by hand, with its hashes."""
    audit = plan(tmp_path)
    path = audit / "private" / "plan.json"
    body = json.loads(path.read_text())
    neighbor = audit / "private" / "data" / f"{body['pairs'][0]['neighbor']:02d}.csv"
    neighbor.write_text("".join(neighbor.read_text().splitlines(keepends=True)[:-2]))
    body["data_sets"][body["pairs"][0]["neighbor"]] = hashlib.sha256(neighbor.read_bytes()).hexdigest()
    path.write_text(json.dumps(body))
    assert f"the data sets of {body['pairs'][0]['name']} are not neighbours" in refused("run", audit, "--command", COPY)


@pytest.mark.slow
def test_the_two_runs_of_a_round_have_no_fixed_order(tmp_path: Path) -> None:
    """Or a generator that keeps state could be told from one that reads the record. One order 16 times over has
    probability 2^-15."""
    audit = plan(tmp_path, "--runs", "60", "--epsilon", "0.1", "--neighbors", "ordinary")
    done("run", audit, "--command", f"{PYTHON} --do noisy --seed {{seed}}", "--all")
    rounds = [row["data"] for row in lines(audit) if row["phase"] == "test"]
    assert {tuple(rounds[index : index + 2]) for index in range(0, len(rounds), 2)} == {(0, 1), (1, 0)}


@pytest.mark.slow
def test_a_control_that_always_fails_shows_nothing(tmp_path: Path) -> None:
    audit = plan(tmp_path, "--runs", "40", "--epsilon", "1", "--neighbors", "ordinary")
    failing = f"{sys.executable} {tmp_path / 'later.py'} {{input}} {{output}}"
    (tmp_path / "later.py").write_text(
        "import pathlib, shutil, sys\n"
        f"tried = pathlib.Path({str(tmp_path / 'tried')!r})\n"
        "if tried.exists():\n    sys.exit(1)\n"
        "tried.touch()\nshutil.copyfile(*sys.argv[1:])\n"
    )
    done("run", audit, "--command", f"{PYTHON} --do noisy --seed {{seed}}", "--unprotected", failing)
    assert "failed in all runs that were tried, so the control shows nothing" in done("bound", audit)["control"]


def test_after_the_bound_no_run_is_made(tmp_path: Path) -> None:
    audit = plan(tmp_path)
    settings = ("--command", COPY)
    assert "holds no runs" in refused("bound", audit)
    assert "holds no bound" in refused("report", audit)
    done("run", audit, *settings)
    result = done("bound", audit, code=1)
    for again in (("run", audit, *settings), ("score", audit)):
        assert "its bound was computed" in refused(*again)
    assert done("bound", audit, code=1) == result
    assert "exists and is not an empty folder" in refused("plan", "--like", tmp_path / "people.csv", "-o", audit)


def test_an_audit_without_a_finished_round_is_not_bounded(tmp_path: Path) -> None:
    """A bound would end the audit with nothing tested; so it is refused, and the audit goes on."""
    audit = plan(tmp_path)
    done("run", audit, "--command", COPY)
    path = audit / "private" / "results.jsonl"
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:3]))
    assert "no round is finished, so nothing was tested; go on with" in refused("bound", audit)
    assert not (audit / "bound.json").exists()
    done("run", audit, "--command", COPY)
    done("bound", audit, code=1)


@pytest.mark.grid
@pytest.mark.parametrize(("epsilon", "runs"), [("1", 300), ("4", 488)])
def test_a_claim_gets_the_runs_that_it_needs(epsilon: str, runs: int, tmp_path: Path) -> None:
    """Fewer than 244 runs never refute ε = 4; twice as many are planned."""
    like = write(tmp_path / "people.csv", people())
    result = done("plan", "--like", like, "-o", tmp_path / "audit", "--epsilon", epsilon)
    assert result["runs"] == runs
    assert runs == max(300, 2 * result["runs_needed"])


@pytest.mark.slow
def test_the_control_shows_what_can_be_found(tmp_path: Path) -> None:
    audit = plan(tmp_path, "--runs", "40", "--epsilon", "0.1")
    given = ("--command", f"{PYTHON} --do noisy --seed {{seed}}", "--unprotected", COPY)
    made = done("run", audit, *given)
    assert {item[0] for item in numbers(audit)} == {"claimed", "unprotected"}
    assert made["runs"] == len(lines(audit))
    result = dpassay("bound", audit, "--json")
    outcome = json.loads(result.stdout)
    assert outcome["unprotected"]["details"]["refuted"] is True
    assert outcome["unprotected"]["details"]["runs"] + outcome["audit"]["details"]["runs"] == made["runs"]


@pytest.mark.slow
def test_functions_get_records_of_their_own(tmp_path: Path) -> None:
    """One that empties its argument spoils no other run; texts of NumPy are texts; leaving is a failure."""
    audit = plan(tmp_path, suffix=".parquet")
    done("run", audit, "--function", "toy_functions:copy")
    assert done("bound", audit, code=1)["refuted"] is True
    assert all(row["features"][""]["rows"] > 10 for row in lines(audit))
    for name, code in (("constant", 0), ("leaves_later", 1)):
        home = tmp_path / name
        home.mkdir()
        audit = plan(home, "--failures", "--runs", "60", "--epsilon", "0.1", "--neighbors", "ordinary", suffix=".jsonl")
        done("run", audit, "--function", f"toy_functions:{name}")
        assert done("bound", audit, code=code)["audit"]["bounds"]
        if name == "constant":
            assert all(row["features"][""]["age: largest"] < 60 for row in lines(audit))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["leak", "right"])
def test_the_command_and_the_assertion_agree(tmp_path: Path, name: str) -> None:
    """A command, the same as a function, and `assert_never_exceeds` on the neighbours that were planned.

    Randomised response at ε = 1 is refuted by the first two with probability at most 0.01, by the third at most 1e-4.
    """
    code, rates = (1, toy_functions.LEAK) if name == "leak" else (0, toy_functions.RIGHT)
    settings = ("--epsilon", "1", "--runs", "80", "--confidence", "0.99", "--neighbors", "rare_category")
    audit = plan(tmp_path, *settings)
    shutil.copytree(audit, tmp_path / "second")
    given = " ".join(map(str, rates))
    done("run", audit, "--command", f"{PYTHON} --do response --rates {given} --seed {{seed}}")
    done("run", tmp_path / "second", "--function", f"toy_functions:{name}")
    first, second = (done("bound", folder, code=code) for folder in (audit, tmp_path / "second"))
    assert first["audit"]["details"]["bets"][0] == second["audit"]["details"]["bets"][0]
    assert code == 0 or first["audit"]["bounds"] == second["audit"]["bounds"]  # seeds of commands have 32 bits
    planned = read_plan(audit)
    (pair,) = planned.plan.pairs
    check = functools.partial(
        assert_never_exceeds,
        lambda rows, source: toy_functions.response(rows, source.below(2**62), rates)[0]["city"] == "SECRET-town",
        PureDP(1.0),
        data=[dict(row) for row in planned.rows(pair.data)],
        neighbor=[dict(row) for row in planned.rows(pair.neighbor)],
        runs=300,
        confidence=0.9999,
    )
    if code:
        with pytest.raises(AssertionError, match="leaks more than it claims"):
            check()
    else:
        check()


@pytest.mark.parametrize("workers", [1, 2])
def test_functions_run_in_processes(tmp_path: Path, workers: int) -> None:
    audit = plan(tmp_path)
    done("run", audit, "--function", "toy_functions:copy", "--workers", workers)
    assert done("bound", audit, code=1)["refuted"] is True
    assert not multiprocessing.active_children()


@pytest.mark.grid
@pytest.mark.parametrize(("name", "more"), [("dies_later", ()), ("hangs_later", ("--timeout", "2"))])
def test_a_run_that_ends_its_process_or_hangs_has_failed(tmp_path: Path, name: str, more: tuple[str, ...]) -> None:
    """And is recorded, since to make it again would be to choose among outcomes. It fails on D′ only."""
    audit = plan(tmp_path, "--failures", "--runs", "20", "--epsilon", "0.1", "--neighbors", "ordinary", suffix=".jsonl")
    made = done("run", audit, "--function", f"toy_functions:{name}", *more)
    assert made["finished"] is True
    failed = {row["data"]: row["features"][""]["failed"] for row in lines(audit)}
    assert failed == {0: 0.0, 1: 1.0}
    assert all(row["features"][""]["failed"] == failed[row["data"]] for row in lines(audit))
    logs = [path.read_text() for path in (audit / "private" / "failures").iterdir()]
    assert logs
    assert all("SECRET" in log for log in logs)  # what it printed is kept where only the owner reads it
    assert not multiprocessing.active_children()


def test_a_function_that_prints_spoils_no_output(tmp_path: Path) -> None:
    audit = plan(tmp_path)
    result = dpassay("run", audit, "--function", "toy_functions:prints", "--json")
    assert json.loads(result.stdout)["finished"] is True
    assert "SECRET" not in result.stdout + result.stderr


def test_a_function_may_start_and_end_processes_of_its_own(tmp_path: Path) -> None:
    """A signal that is ignored in the process of a function would be in its workers, which then never end."""
    audit = plan(tmp_path, "--runs", "20", "--neighbors", "ordinary")
    done("run", audit, "--function", "toy_functions:workers_of_its_own", "--timeout", "20")
    assert not any(row["features"][""]["failed"] for row in lines(audit))


def test_outputs_that_were_made_elsewhere_are_read_until_no_more_are_needed(tmp_path: Path) -> None:
    """Some of them failed, some are missing at first, and one cannot be read."""
    audit = plan(tmp_path, "--runs", "40", "--epsilon", "0.1")
    private = audit / "private"
    made, rounds = 0, 0
    while not (result := done("score", audit))["finished"]:
        with (private / "todo.csv").open() as file:
            todo = list(csv.DictReader(file))
        assert [Path(row["output"]).stem for row in todo] == result["wanted"]
        assert len({row["seed"] for row in todo}) == len(todo)
        for index, row in enumerate(todo):
            output = audit / row["output"]
            if index % 5 == 4:
                (output.parent / f"{output.name}.failed").touch()
            elif index % 7 != 6 or len(todo) == 1:
                shutil.copyfile(audit / row["input"], output)
        if rounds == 0:
            first = audit / todo[0]["output"]
            first.write_text('age,city,note\n"SECRET')
            assert "if it is still being copied, wait; else the run has failed" in refused("score", audit)
            shutil.copyfile(audit / todo[0]["input"], first)
        rounds += 1
    made = result["runs"]
    assert 0 < made == len(set(numbers(audit))) <= 40
    assert (private / "todo.csv").read_text() == "generator,input,output,seed\n"
    assert "made by another command" in refused("run", audit, "--command", COPY)
    assert dpassay("bound", audit, "-q").returncode in (0, 1)


def test_a_run_that_failed_after_it_wrote_something_has_failed(tmp_path: Path) -> None:
    audit = plan(tmp_path)
    done("score", audit)
    with (audit / "private" / "todo.csv").open() as file:
        output = audit / next(csv.DictReader(file))["output"]
    shutil.copyfile(audit / "private" / "data" / "00.csv", output)
    output.with_name(f"{output.name}.failed").touch()
    done("score", audit)
    (row,) = lines(audit)
    assert row["features"][""] == {"failed": 1.0}


def test_outputs_of_the_control_are_asked_for_too(tmp_path: Path) -> None:
    audit = plan(tmp_path)
    assert {item.partition("-")[0] for item in done("score", audit, "--unprotected")["wanted"]} == {
        "claimed",
        "unprotected",
    }


def changed(**fields: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        body = json.loads(path.read_text())
        body |= fields
        path.write_text(json.dumps(body))

    return change


def in_pair(**fields: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        body = json.loads(path.read_text())
        body["pairs"][0] |= fields
        path.write_text(json.dumps(body))

    return change


def content(text: str | bytes) -> Callable[[Path], None]:
    return lambda path: void(path.write_bytes(text if isinstance(text, bytes) else text.encode()))


def void(_: object) -> None:
    pass


PLANS: dict[str, Callable[[Path], None]] = {
    "no JSON": content("SECRET"),
    "cut off": lambda path: void(path.write_bytes(path.read_bytes()[:-30])),
    "no text": content(b"\xff\xfe\x00"),
    "a list": content("[]"),
    "nested deeply": content("[" * 100_000),
    "nested deeply in a key": content('{"pairs": ' + '{"a":' * 100_000),
    "a huge number": content('{"runs": ' + "9" * 5000 + "}"),
    "another version": changed(schema_version=2),
    "another key": changed(more=1),
    "NaN": changed(confidence=float("nan")),
    "no pairs": changed(pairs=[]),
    "no columns": changed(columns=[]),
    "too few runs": changed(runs=3),
    "another adjacency": changed(adjacency="SECRET"),
    "another unit": changed(unit="SECRET"),
    "a negative seed": changed(seed=-1),
    "a suffix that is a path": changed(suffix="/../../../etc/passwd"),
    "no data": changed(data_sets=[]),
    "an unknown strategy": in_pair(name="SECRET"),
    "a data set that is not there": in_pair(data=99),
    "a negative data set": in_pair(data=-1),
    "a target without columns": in_pair(target={}),
    "a novel column that is not there": in_pair(novel=["SECRET"]),
    "a threshold that is infinite": in_pair(events=[{"feature": "rows", "threshold": float("inf")}]),
    "a separator that there is not": changed(dialect={"separator": "SECRET", "encoding": "utf-8", "header": True}),
    "an encoding that there is not": changed(dialect={"separator": ",", "encoding": "SECRET", "header": True}),
    "columns that nobody understood": changed(understood={"written": "SECRET", "columns": [{"name": "SECRET"}]}),
    "a claim of nothing": changed(claim={"epsilon": -1, "delta": 0}),
    "a claim that is infinite": changed(claim={"epsilon": float("inf"), "delta": 0}),
    "one pair twice": lambda path: changed(pairs=[*json.loads(path.read_text())["pairs"]] * 2)(path),
    "decimals that overflow": lambda path: changed(
        columns=[{**column, "decimals": -400} for column in json.loads(path.read_text())["columns"]]
    )(path),
    "a range that is infinite": lambda path: changed(
        columns=[{**column, "high": float("inf")} for column in json.loads(path.read_text())["columns"]]
    )(path),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_was_changed_is_refused(name: str, finished: Path, tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    shutil.copytree(finished, audit)
    PLANS[name](audit / "private" / "plan.json")
    for words in (
        ("bound", audit),
        ("report", audit),
        ("score", audit),
        ("run", audit, "--command", COPY),
    ):
        assert "private" in refused(*words)
    assert not (audit / "bound.json").exists()


def another(**changes: Any) -> Callable[[Path], None]:
    """Adds a result that would be one of the plan, if it were not for these changes."""

    def add(path: Path) -> None:
        first = next(row for row in map(json.loads, path.read_text().splitlines()) if "phase" in row)
        added(path, json.dumps({**first, "number": 39, **changes}))

    return add


RESULTS: dict[str, Callable[[Path], None]] = {
    "of another plan": lambda path: void(path.write_text('{"runs": 1, "plan": "00"}\n')),
    "no header": lambda path: void(path.write_text(path.read_text().partition("\n")[2])),
    "of another version": lambda path: void(path.write_text(path.read_text().replace('"runs": 1', '"runs": 2', 1))),
    "no JSON": lambda path: added(path, "SECRET"),
    "an empty line": lambda path: added(path, ""),
    "no text": lambda path: void(path.write_bytes(path.read_bytes() + b"\xff\xfe\n")),
    "a list": lambda path: added(path, "[1]"),
    "a number": lambda path: added(path, "1"),
    "nested deeply": lambda path: added(path, "[" * 100_000),
    "a huge number": lambda path: added(path, "9" * 5000),
    "NaN": lambda path: added(path, valued(path, float("nan"))),
    "infinity": lambda path: added(path, valued(path, float("inf"))),
    "features that are words": lambda path: added(path, valued(path, "SECRET")),
    "features that are a list": another(features=[1]),
    "features of no pair": another(features={}),
    "no features": another(features=None),
    "a data set that is infinite": another(data=float("inf")),
    "a data set that is not there": another(data=99),
    "a phase that is a list": another(phase=[]),
    "a phase that there is not": another(phase="SECRET"),
    "an arm that there is not": another(arm="SECRET"),
    "a run that is there already": another(number=0),
    "a run beyond the plan": another(number=40),
    "times that are words": another(seconds="SECRET"),
    "times that are infinite": another(seconds=float("inf")),
    "times that are no number": another(seconds=float("nan")),
    "times below 0": another(seconds=-1.0),
}


def valued(path: Path, value: Any) -> str:
    """A result in which one feature has this value."""
    first = next(row for row in map(json.loads, path.read_text().splitlines()) if "phase" in row)
    first["features"][""]["rows"] = value
    return json.dumps({**first, "number": 39})


def test_a_result_that_is_one_of_the_plan_is_read(finished: Path, tmp_path: Path) -> None:
    """So the changes below are refused for what they change."""
    audit = tmp_path / "audit"
    shutil.copytree(finished, audit)
    another()(audit / "private" / "results.jsonl")
    assert dpassay("bound", audit, "-q").returncode == 1


def added(path: Path, line: str) -> None:
    path.write_text(f"{path.read_text()}{line}\n")


@pytest.mark.grid
@pytest.mark.parametrize("name", RESULTS)
def test_results_that_were_changed_are_refused(name: str, finished: Path, tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    shutil.copytree(finished, audit)
    path = audit / "private" / "results.jsonl"
    RESULTS[name](path)
    before = path.read_bytes()
    for words in (("bound", audit), ("score", audit), ("run", audit, "--command", COPY)):
        assert str(path) in refused(*words)
    assert path.read_bytes() == before
    assert not (audit / "bound.json").exists()


def test_data_that_were_changed_are_refused(finished: Path, tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    shutil.copytree(finished, audit)
    added(audit / "private" / "data" / "00.csv", "1,SECRET,x")
    (audit / "private" / "results.jsonl").unlink()
    for words in (("score", audit), ("run", audit, "--command", COPY)):
        assert "was changed since it was planned" in refused(*words)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit whose runs are made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_runs_power, "REPETITIONS", 20)
        audit = plan(tmp_path_factory.mktemp("finished"))
        done("run", audit, "--command", COPY)
    return audit


@pytest.mark.parametrize(
    ("content", "more", "says"),
    [
        ("", (), "holds no records"),
        ("age,city\n", (), "holds no records"),
        ("age,city\n1,SECRET\n2,b\n", (), "or more, and there are 2"),
        ("SECRET" * 50, ("--label", "age"), "holds no records"),
        (None, ("--neighbors", "worst"), "neighbors must be one of"),
        (None, ("--neighbors", "new_token", "--categorical", "note"), "none of the strategies new_token applies"),
        (None, ("--label", "age"), "is no column of categories"),
        (None, ("--categorical", "height"), "there is no column 'height'"),
        (None, ("--text", "height"), "there is no column 'height'"),
        (None, ("--adjacency", "zero_out"), "adjacency must be"),
        (None, ("--unit", "user"), "give 'group(k)'"),
        (None, ("--unit", "group(40)"), "neighbours are made from 44 records or more, and there are 30"),
        (None, ("--runs", "19"), "runs must be"),
        (None, ("--records", "4"), "records must be"),
        (None, ("--epsilon", "-1"), "epsilon"),
        (None, ("--delta", "0.1"), "a δ belongs to a claim"),
        (None, ("--confidence", "1"), "confidence"),
        (None, ("--confidence", "0.9", "--epsilon", "1"), "a claim is refuted at confidence 0.95 or more, not at 0.9"),
        (None, ("--schema", "no.yaml"), "no.yaml: cannot be read"),
    ],
)
def test_a_plan_that_cannot_be_made_is_one_line(
    tmp_path: Path, content: str | None, more: tuple[str, ...], says: str
) -> None:
    like = write(tmp_path / "people.csv", people())
    if content is not None:
        like.write_text(content)
    assert says in refused("plan", "--like", like, "-o", tmp_path / "audit", *more)
    assert not (tmp_path / "audit").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"people.csv"}


@pytest.mark.parametrize("broken", ["note", "age\ud83d"])
def test_half_a_surrogate_pair_is_refused(tmp_path: Path, broken: str) -> None:
    rows = [{broken if name in broken else name: cell for name, cell in row.items()} for row in people()]
    if broken == "note":
        rows = [{**row, "note": f"{row['note']} SECRET\ud83d"} for row in rows]
    like = write(tmp_path / "people.jsonl", rows)
    says = refused("plan", "--like", like, "-o", tmp_path / "audit")
    assert f"people.jsonl: column {broken!r} holds half of a surrogate pair" in says
    assert not (tmp_path / "audit").exists()


@pytest.mark.grid
@pytest.mark.parametrize(
    "types",
    [
        {"age": pyarrow.uint8(), "city": pyarrow.dictionary(pyarrow.int8(), pyarrow.string())},
        {"age": pyarrow.float32()},
        {"age": pyarrow.int64()},
        {"age": pyarrow.decimal128(24, 2)},
        {"city": pyarrow.large_string()},
    ],
)
def test_columns_of_parquet_keep_their_types(tmp_path: Path, types: dict[str, Any]) -> None:
    """Neighbours are written in the types of the file, and what is written is what the plan says."""
    rows = [
        {**row, "day": 18000 + row["age"], "at": row["age"] * 10**9, "ok": bool(row["age"] % 2)} for row in people()
    ]
    table = pyarrow.Table.from_pylist(rows)
    kinds = {"day": pyarrow.date32(), "at": pyarrow.timestamp("us")} | types
    for index, name in enumerate(table.column_names):
        column = table.column(name)
        if name == "day":
            column = column.cast(pyarrow.int32())
        if name in kinds:
            table = table.set_column(index, name, column.cast(kinds[name]))
    pyarrow.parquet.write_table(table, tmp_path / "people.parquet")
    audit = tmp_path / "audit"
    done("plan", "--like", tmp_path / "people.parquet", "-o", audit, "--runs", "40", "--epsilon", "0.1")
    planned = json.loads((audit / "private" / "plan.json").read_text())
    for pair in planned["pairs"]:
        result = pyarrow.parquet.read_table(audit / "private" / "data" / f"{pair['neighbor']:02d}.parquet")
        assert result.schema.equals(table.schema)
        last = result.to_pylist()[-1]
        for name, value in pair["target"].items():
            if isinstance(value, str | bool) or value is None:
                assert str(last[name]) == str(value) or last[name] == value or float(last[name]) == float(str(value)), (
                    name
                )
            else:
                assert float(last[name]) == pytest.approx(value, rel=1e-6)
    done("run", audit, "--command", COPY)
    assert done("bound", audit, code=1)["refuted"] is True


def test_each_command_prints_words_too(tmp_path: Path) -> None:
    like, audit = write(tmp_path / "people.csv", people()), tmp_path / "audit"
    planned = dpassay("plan", "--like", like, "--epsilon", "0.1", "--runs", "40", "-o", audit)
    assert "Next: dpassay audit runs run" in " ".join(planned.stdout.split())
    assert "the next" in dpassay("score", audit).stdout
    (audit / "private" / "results.jsonl").unlink()
    assert (
        "runs were made, and no more are needed: the claim is refuted."
        in dpassay("run", audit, "--command", COPY).stdout
    )
    bound = dpassay("bound", audit)
    assert bound.returncode == 1
    assert "is refuted" in " ".join(bound.stdout.split())
    assert "Report:" in dpassay("report", audit).stdout
