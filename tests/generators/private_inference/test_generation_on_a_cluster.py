"""Runs of the command on workers: what is released is what the ledger holds, charged once, whoever is killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import command
import pytest
import yaml
from dask_processes import TTL, Dask, dask
from ledger_reader import RunRead, entries

from dpassay.mechanisms.models.language_model import LanguageModel

TOKENS, LONGEST, PREFIX = 400, 16, "My 5-digit key is "


def claim(folder: Path, tokens: int, **changes: Any) -> Path:
    body: dict[str, Any] = {
        "name": "keys",
        "data": {"source": "builtin", "name": "keys"},
        "mechanism": "private_inference",
        "parameters": {
            **{"aggregate": "median", "center": "none", "clip": 10.0, "temperature": 1.2, "batch_size": 15},
            **{"tokens": tokens, "document_tokens": LONGEST, "prefix": PREFIX},
        },
        "model": "builtin",
        "public": {"records": 60, "labels": ["key"], "context_tokens": 24},
        "guarantee": {"type": "ex_post", "epsilon": 30.0},
    }
    file = folder / "claim.yaml"
    file.write_text(yaml.safe_dump(body | changes))
    return file


def background(asked: Path, output: Path, *options: object) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "dpassay", "generate", asked, "-o", output, "--device", "cpu", "-q", *options]
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def ledger_of(output: Path) -> Path:
    return output / "private" / "ledger.sqlite"


def committed(output: Path) -> int:
    """The number of tokens that each slot has in the ledger."""
    return sum(
        entry.kind == "commit" and entry.body["key"].startswith("tokens/") for entry in entries(ledger_of(output))
    )


def wait_for_tokens(output: Path, many: int, process: subprocess.Popen[bytes]) -> None:
    """Until the ledger has so many, or the process ended."""
    end = time.monotonic() + 240
    while committed(output) < many and process.poll() is None:
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


def check(output: Path, tokens: int) -> None:
    """The documents are those of the committed tokens; every step was charged once, and no other."""
    run = RunRead(entry for entry in entries(ledger_of(output)) if entry.run == "keys")
    assert run.finished
    assert run.whole
    assert run.steps("tokens") == tokens
    model = LanguageModel.load(device="cpu")
    slots = len(run.committed["tokens/0"]["tokens"])
    texts = []
    for slot in range(slots):
        current: list[int] = []
        for step in range(tokens):
            current.append(run.committed[f"tokens/{step}"]["tokens"][slot])
            if current[-1] in model.end_of_text_ids:
                texts.append((slot, PREFIX + model.decode(current[:-1])))
            if current[-1] in model.end_of_text_ids or len(current) == LONGEST:
                current = []
    rows = [json.loads(line) for line in (output / "private" / "synthetic.jsonl").read_text().splitlines()]
    assert [(row["slot"], row["text"]) for row in rows] == texts


def test_the_command_on_two_processes(tmp_path: Path) -> None:
    asked = claim(tmp_path, 24, audits=["leave_one_out", "record_replay"])
    result = command.run("assay", asked, "-o", tmp_path / "out", "--workers", "2", "--device", "cpu", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["verdict"] == "SUPPORTED"


def test_a_generator_of_one_process_says_so(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "claims" / "table-two-stage.yaml"
    result = command.run("generate", example, "-o", tmp_path / "out", "--workers", "2")
    assert result.returncode == 2
    assert "--workers: mechanism two_stage runs in one process; leave it out" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_twenty_killed_coordinators_charge_nothing_twice(tmp_path: Path) -> None:
    """Each life goes on with other workers."""
    asked, output, tokens = claim(tmp_path, TOKENS), tmp_path / "out", TOKENS
    rng, kills = random.Random(5), 0
    cluster: Dask
    while kills < 20:
        with dask(tmp_path / f"dask-{kills}", 1 + kills % 2) as cluster:
            for _ in range(5):
                process = background(asked, output, "--cluster", cluster.address)
                aim = committed(output) + rng.randrange(1, 18)
                wait_for_tokens(output, aim, process)
                time.sleep(rng.random() / 5)
                assert process.poll() is None, (process.communicate(), committed(output))
                process.kill()
                process.communicate()
                kills += 1
    assert committed(output) < tokens
    with dask(tmp_path / "last", 1) as cluster:
        _, errors = background(asked, output, "--cluster", cluster.address).communicate(timeout=300)
    assert not errors
    check(output, tokens)


@pytest.mark.slow
def test_a_scheduler_that_is_gone_ends_the_run_and_another_one_resumes_it(tmp_path: Path) -> None:
    asked, output = claim(tmp_path, TOKENS), tmp_path / "out"
    for number in range(2):
        with dask(tmp_path / f"dask-{number}", 2) as cluster:
            process = background(asked, output, "--cluster", cluster.address)
            before = committed(output)
            wait_for_tokens(output, before + 20, process)
            cluster.kill_scheduler()
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 2, errors
        assert "the scheduler of the cluster is gone while work was under way; nothing was released" in errors.decode()
        assert len(errors.decode().strip().splitlines()) == 1
    with dask(tmp_path / "last", 1) as cluster:
        _, errors = background(asked, output, "--cluster", cluster.address).communicate(timeout=300)
    check(output, TOKENS)


@pytest.mark.slow
def test_a_worker_that_is_silent_for_long_and_comes_back_charges_nothing_twice(tmp_path: Path) -> None:
    """As where the network is cut: its piece is done by another worker, and what it returns later is not wanted."""
    asked, output = claim(tmp_path, 150), tmp_path / "out"
    with dask(tmp_path / "dask", 2) as cluster:
        process = background(asked, output, "--cluster", cluster.address)
        for aim in (10, 60):
            wait_for_tokens(output, aim, process)
            cluster.pause_worker(3 * TTL)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    check(output, 150)


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_an_interruption_leaves_workers_that_go_on(tmp_path: Path) -> None:
    asked, output = claim(tmp_path, TOKENS), tmp_path / "out"
    with dask(tmp_path / "dask", 2) as cluster:
        process = background(asked, output, "--cluster", cluster.address)
        wait_for_tokens(output, 5, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        process = background(asked, output, "--cluster", cluster.address)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    check(output, TOKENS)
