"""Shuffled batches on the command line and in a claim."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import run, written

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "accounting.md").read_text(encoding="utf-8")
TWENTY = ["--noise-multiplier", "1", "--batches", "100", "--epochs", "20", "--delta", "1e-6"]


def test_the_run_is_set_beside_what_it_is_often_taken_for() -> None:
    result = written("compare", "shuffled", *TWENTY)
    row = next(row for row in result["rows"] if row["method"] == "lattice")
    samples = written(
        "compare", "dp-sgd", "--noise-multiplier", "1", "--sampling-probability", ".01", "--steps", "2000", "--delta",
        "1e-6", "--adjacency", "zero_out", "--method", "lattice",
    )  # fmt: skip
    taken = result["taken_for"]
    assert taken["as"] == "Poisson samples at the rate 0.01"
    assert taken["bound"]["value"] == pytest.approx(samples["rows"][0]["value"], rel=1e-3)  # the default width
    assert 4.5 * taken["bound"]["value"] < row["interval"][0] < row["value"] == row["interval"][1]
    assert row["adjacency"] == "zero_out"
    assert "taken_for" not in samples


def test_what_the_guide_shows_is_printed() -> None:
    part = GUIDE.split("\n### Shuffled batches\n")[1].split("\n### ")[0]
    (command,) = re.findall(r"```sh\ndpassay (.*?)\n```", part)
    (shown,) = re.findall(r"```text\n(.*?)```", part, re.S)
    printed = run(*command.split()).stdout
    row, *sentence = shown.splitlines()
    assert row in printed
    assert " ".join(sentence) in " ".join(printed.split())


def test_little_noise_is_not_said_to_be_refuted() -> None:
    """At σ = 10 Poisson samples cost more than what is attained, so nothing is known."""
    words = ["--noise-multiplier", "10", "--batches", "100", "--epochs", "100", "--delta", "1e-5"]
    printed = " ".join(run("compare", "shuffled", *words, "--method", "lattice").stdout.split())
    assert "whether that holds for what ran is not known" in printed


def test_records_and_batch_size_say_the_batches() -> None:
    words = ["--target-epsilon", "3", "--delta", "1e-6", "--epochs", "20"]
    of_records = written("calibrate", "shuffled", *words, "--records", "60000", "--batch-size", "256")
    assert of_records["batches"] == 235
    assert of_records["value"] == written("calibrate", "shuffled", *words, "--batches", "235")["value"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give either --batches, or --records and --batch-size"),
        (["--batches", "10", "--records", "10", "--batch-size", "1"], "give either --batches, or"),
        (["--records", "10"], "--records and --batch-size go together"),
        (["--batches", "0"], "batches must be at least 1"),
        (["--records", "10", "--batch-size", "11"], "batch_size must be at most 10"),
        (["--batches", "10", "--epochs", "0"], "epochs must be at least 1"),
        (["--batches", "10", "--adjacency", "add_remove"], "under zero_out and replace_one, not under add_remove"),
        (["--batches", "10", "--unit", "user"], "--sampled-by user"),
    ],
)
def test_what_is_no_shuffle_is_one_line(options: list[str], message: str) -> None:
    result = run("compare", "shuffled", "--noise-multiplier", "1", "--delta", "1e-6", *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_a_claim_states_shuffled_batches(tmp_path: Path) -> None:
    (tmp_path / "claim.yaml").write_text(
        """
name: shuffled-training
mechanism: declared
adjacency: zero_out
parameters:
  events:
    - name: DP-SGD over shuffled batches
      event:
        class_name: ShuffledBatchesDpEvent
        event: {class_name: GaussianDpEvent, noise_multiplier: 1.0}
        num_batches: 100
      count: 20
guarantee: {type: approx_dp, epsilon: 3.0, delta: 1.0e-6}
"""
    )
    result = written("account", tmp_path / "claim.yaml")
    bounds = {bound["method"]: bound for bound in result["bounds"]}
    assert bounds["lattice"]["value"] == pytest.approx(30.5789, abs=1e-4)
    assert bounds["lattice"]["interval"][0] == pytest.approx(14.572, abs=1e-3)
