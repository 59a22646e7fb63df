"""`dpassay audit membership`: its three inputs, its exit codes, and one line for what is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from command import Result, run

from dpassay.attacks.membership import scores as mi
from dpassay.attacks.membership.ngram_model import NGramModel
from dpassay.data import corpora
from dpassay.mechanisms.models import fine_tuning
from dpassay.mechanisms.models.fine_tuning import Training
from dpassay.mechanisms.models.language_model import LanguageModel


def audit(*arguments: object) -> Result:
    """The subcommand that these arguments belong to: `model` or `text` with --records, else `scores`."""
    given = list(arguments)
    if "--records" not in given:
        return run("audit", "membership", "scores", *given)
    index = given.index("--records")
    records = given.pop(index + 1)
    given.pop(index)
    return run("audit", "membership", "model" if "--model" in given else "text", records, *given)


def rows(seed: int = 0, n: int = 200, m: int = 50, k: int = 8, shift: float = 4.0) -> list[dict[str, Any]]:
    """Signals N(difficulty + shift·in, 1) of n candidates, and of m population records."""
    rng = np.random.default_rng(seed)
    results = []
    for index in range(n + m):
        difficulty = rng.normal(scale=3)
        inside, half = rng.random() < 0.5, rng.random(k // 2) < 0.5
        seen = np.concatenate([half, ~half])
        if index >= n:
            inside, seen = False, np.zeros(k, bool)
        row: dict[str, Any] = {"target": difficulty + shift * inside + rng.normal()}
        row["included"] = None if index >= n else bool(inside)
        for j in range(k):
            row[f"ref_{j + 1}"] = difficulty + shift * bool(seen[j]) + rng.normal()
            row[f"ref_in_{j + 1}"] = bool(seen[j])
        results.append(row)
    return results


def write_csv(path: Path, given: list[dict[str, Any]]) -> Path:
    lines = [",".join(given[0])]
    for row in given:
        lines.append(
            ",".join("" if v is None else str(int(v)) if isinstance(v, bool) else repr(v) for v in row.values())
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def write_jsonl(path: Path, given: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


def test_three_formats_give_the_scores_of_the_arrays(tmp_path: Path) -> None:
    given = rows()
    files = [write_csv(tmp_path / "scores.csv", given), write_jsonl(tmp_path / "scores.jsonl", given)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(given), tmp_path / "scores.parquet")
    files.append(tmp_path / "scores.parquet")
    arguments = ["--coins", "--delta", "1e-5", "--guesses", 50, "--guesses", 100]
    arguments += [
        part for name in ("loss", "lira-online", "lira-offline", "rmia-online") for part in ("--attack", name)
    ]
    answers = []
    for file in files:
        result = audit(file, *arguments, "--json")
        assert result.returncode == 0, result.stderr
        answers.append(json.loads(result.stdout))
    first = answers[0]["audits"][0]
    assert all(answer["audits"][0] == first for answer in answers)
    assert json.loads((tmp_path / "private" / "membership-audit.json").read_text()) == answers[-1]
    assert len(first["details"]["attempts"]) == 8
    assert first["controls_passed"] is True

    candidates = [row for row in given if row["included"] is not None]
    target, included = (np.array([row[name] for row in candidates]) for name in ("target", "included"))
    references = np.array([[row[f"ref_{j}"] for row in candidates] for j in range(1, 9)])
    inclusion = np.array([[row[f"ref_in_{j}"] for row in candidates] for j in range(1, 9)])
    scores = mi.lira_online(target, references, inclusion)
    wins = np.mean(scores[included][:, None] > scores[~included][None, :])
    assert first["details"]["areas"]["lira-online"]["value"] == pytest.approx(wins, abs=1e-12)
    assert first["bounds"][0]["value"] > 1
    assert first["bounds"][0]["private"] is True


def test_defaults_follow_what_is_given(tmp_path: Path) -> None:
    given = rows(m=0)
    without_coins = [{k: v for k, v in row.items() if not k.startswith("ref_in_")} for row in given]
    alone = [{k: row[k] for k in ("target", "included")} for row in given]
    for data, attack in ((given, "lira-online"), (without_coins, "lira-offline"), (alone, "loss")):
        result = audit(write_csv(tmp_path / "s.csv", data), "--json")
        assert list(json.loads(result.stdout)["audits"][0]["details"]["areas"]) == [attack]
        assert json.loads(result.stdout)["audits"][0]["bounds"] == []  # no --coins


def test_a_refuted_claim_exits_with_one(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "s.csv", rows())
    refuted = audit(file, "--coins", "--epsilon", 1, "--delta", "1e-5")
    assert refuted.returncode == 1
    assert "which refutes the claim of ε = 1." in " ".join(refuted.stdout.split())
    kept = audit(file, "--coins", "--epsilon", 8, "--delta", "1e-5")
    assert kept.returncode == 0
    assert "the result says nothing about the claim" in " ".join(kept.stdout.split())
    assert "PRIVATE" in kept.stdout
    quiet = audit(file, "--coins", "-q", "-o", tmp_path / "out.json")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    assert (tmp_path / "out.json").stat().st_mode & 0o077 == 0


NOTES = list(dict.fromkeys(text for text, _ in corpora.notes(700, seed=0)))


def test_synthetic_text_alone(tmp_path: Path) -> None:
    """What copies its members is found out; what was written from others is not, and the control says that it could."""
    coins = np.random.default_rng(1).random(200) < 0.5
    candidates = [{"note": text, "included": int(c)} for text, c in zip(NOTES[:200], coins, strict=True)]
    members = [row["note"] for row in candidates if row["included"]]
    records = write_jsonl(tmp_path / "candidates.jsonl", candidates)
    reference = write_jsonl(tmp_path / "public.jsonl", [{"note": text} for text in NOTES[200:400]])
    copied = write_jsonl(tmp_path / "copied.jsonl", [{"text": text} for text in members * 2])
    honest = NGramModel.fit(NOTES[400:]).sample(np.random.default_rng(2), 300, longest=250)
    written = write_jsonl(tmp_path / "honest.jsonl", [{"text": text} for text in honest])
    options = ("--records", records, "--reference", reference, "--text", "note", "--coins", "--json")
    both = ("--attack", "ngram", "--attack", "neighbourhood", "--neighbours", 1)
    leak = json.loads(audit(*options, *both, "--synthetic", copied).stdout)["audits"][0]
    assert leak["bounds"][0]["value"] > 1
    none = json.loads(audit(*options, *both, "--synthetic", written).stdout)["audits"][0]
    assert none["bounds"][0]["value"] == 0
    assert none["controls_passed"] is True
    assert "no leak is shown. A test of this size has 50 % power to show a leak if " in none["conclusion"]
    assert not any(text in json.dumps([leak, none]) for text in NOTES[:400])


def test_reference_models_are_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LanguageModel, "check_rows", lambda model: None)  # takes most of the time of a load
    keys = corpora.keys(8, seed=4)
    candidates = [{"text": text, "included": index % 2} for index, text in enumerate(keys[:6])]
    reference = write_jsonl(tmp_path / "public.jsonl", [{"text": text} for text in keys[6:]])
    options = ["--records", write_jsonl(tmp_path / "c.jsonl", candidates), "--model", "builtin", "--coins", "--json"]
    options += ["--reference", reference, "--references", 2, "--epochs", 1, "--attack", "rmia-online"]
    first, again = audit(*options), audit(*options)
    assert first.returncode == 0, first.stderr
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert (tmp_path / "private" / "reference-models" / "repetitions.jsonl").is_file()
    assert '"percent": 100' in again.stderr
    assert '"percent": 50' not in again.stderr
    other = audit(*options, "--epochs", 2)
    assert other.returncode == 2
    assert "other settings" in [json.loads(line) for line in other.stderr.splitlines()][-1]["error"]


@pytest.mark.slow
def test_a_model_that_learned_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the loss and RMIA."""
    monkeypatch.setattr(LanguageModel, "check_rows", lambda model: None)  # takes most of the time of a load
    keys = corpora.keys(64, seed=4)
    coins = np.random.default_rng(5).random(40) < 0.5
    candidates = [{"text": text, "included": bool(c)} for text, c in zip(keys, coins, strict=False)]
    training = Training(epochs=8, batch_size=4, learning_rate=3e-3)
    members = [text for text, c in zip(keys, coins, strict=False) if c]
    target = fine_tuning.fine_tune(LanguageModel.load("builtin", "cpu"), members, training, seed=6)
    fine_tuning.save(target, tmp_path / "model")
    records = write_jsonl(tmp_path / "candidates.jsonl", candidates)
    reference = write_jsonl(tmp_path / "public.jsonl", [{"text": text} for text in keys[40:]])
    options = ["--records", records, "--model", tmp_path / "model", "--reference", reference, "--coins", "--json"]
    options += ["--references", 2, "--epochs", 8, "--batch-size", 4, "--learning-rate", 0.003, "--gamma", 1]
    options += [part for name in ("loss", "rmia-online", "rmia-offline") for part in ("--attack", name)]
    result = audit(*options)
    assert result.returncode == 0, result.stderr
    outcome = json.loads(result.stdout)["audits"][0]
    # By chance an area has a standard deviation of .093 here; this run is the same every time.
    assert min(area["value"] for area in outcome["details"]["areas"].values()) > 0.8
    assert outcome["bounds"][0]["value"] > 0.2


GOOD = rows(n=20, m=2, k=4)


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"target": None}, [], r"line 2: column 'target' must hold a finite number"),
        ({"target": "nan"}, [], r"line 2: column 'target' must hold a finite number"),
        ({"included": "maybe"}, [], r"line 2: column 'included' must hold 1 or 0"),
        ({"ref_in_1": None}, [], r"line 2: column 'ref_in_1' must hold 1 or 0"),
        ({}, ["--attack", "ngram"], "must be one of loss, lira-online"),
        ({}, ["--guesses", 21, "--coins"], "number of candidates, 20, not 21"),
        ({}, ["--guesses", 0], "guesses must be at least 1"),
        ({}, ["--side", "out"], "--side must be both or in"),
        ({}, ["--delta", 1], "delta must be below 1"),
        ({}, ["--unit", "secret"], "cannot test unit secret"),
        ({}, ["--unit", "user"], "the column 'user' must name each candidate's user"),
        ({"target": "1" * 400}, [], r"line 2: column 'target' must hold a finite number"),
        ({}, ["--attack", "rmia-online", "--gamma", 0], "gamma must be above 0"),
        ({}, ["--records", "x.jsonl"], "Missing option .--synthetic"),
        ({}, ["-o", "nowhere/out.json"], "name a file in an existing folder with -o"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, change: dict[str, Any], arguments: list[object], message: str) -> None:
    result = audit(write_jsonl_as_csv(tmp_path / "s.csv", [{**GOOD[0], **change}, *GOOD[1:]]), *arguments)
    assert result.returncode == 2, result.stdout
    assert result.stderr.count("\n") == 1
    assert re.search(message, result.stderr)
    assert not (tmp_path / "private").exists()


def write_jsonl_as_csv(path: Path, given: list[dict[str, Any]]) -> Path:
    """CSV of values that may be any text."""
    lines = [",".join(given[0]), *(",".join("" if v is None else str(v) for v in row.values()) for row in given)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("target\n1\n", "no column 'included'"),
        ("target,included,ref_1,ref_2,ref_in_2\n1,1,1,1,1\n", "column 'ref_1' has no 'ref_in_1'"),
        ("target,included,ref_in_1\n1,1,1\n", "column 'ref_in_1' has no 'ref_1'"),
        ("target,included\n1,1\n2,1\n", "2 of 2 candidates were in the data"),
        ("target,included\n", "0 of 0 candidates"),
    ],
)
def test_files_that_do_not_do_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "s.csv").write_text(content)
    result = audit(tmp_path / "s.csv")
    assert result.returncode == 2
    assert message in result.stderr


def test_reference_texts_that_are_candidates_are_refused(tmp_path: Path) -> None:
    """The candidates that were left out are no reference: whoever compares with them knows the coins."""
    coins = np.random.default_rng(1).random(200) < 0.5
    candidates = [{"text": text, "included": int(c)} for text, c in zip(NOTES[:200], coins, strict=True)]
    records = write_jsonl(tmp_path / "candidates.jsonl", candidates)
    left_out = [{"text": f"{row['text']} "} for row in candidates if not row["included"]]
    holdout = write_jsonl(tmp_path / "holdout.jsonl", [{"text": NOTES[300]}, *left_out])
    written = write_jsonl(tmp_path / "synthetic.jsonl", [{"text": text} for text in NOTES[400:600]])
    for other in (("--synthetic", written), ("--model", "builtin")):
        result = audit("--records", records, "--reference", holdout, "--coins", *other)
        assert result.returncode == 2
        assert "holdout.jsonl: text 2 is a candidate" in result.stderr
        assert result.stderr.count("\n") == 1


def test_what_cannot_work_is_said_before_any_model_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LanguageModel, "load", None)
    records = write_jsonl(tmp_path / "c.jsonl", [{"text": text, "included": i % 2} for i, text in enumerate("abcd")])
    surrogate = write_jsonl(tmp_path / "s.jsonl", [{"text": "\ud800", "included": 1}])
    for options, message in (
        (("--records", records, "--coins", "--guesses", 5), "number of candidates, 4, not 5"),
        (("--records", records, "--references", 2, "--attack", "rmia-online"), "needs population records"),
        (("--records", records, "--attack", "lira-online"), "need reference models"),
        (("--records", surrogate), "has an unpaired surrogate"),
        (("--records", records, "--references", 2), "no record has 2 reference models with it"),
        (("--records", records, "--references", -1), "--references must be from 0 to 10000, not -1"),
    ):
        result = audit("--model", "builtin", *options)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert message in result.stderr


def test_a_user_has_one_candidate(tmp_path: Path) -> None:
    given = [{**row, "user": index} for index, row in enumerate(rows(m=0))]
    outcome = audit(write_csv(tmp_path / "s.csv", given), "--unit", "user", "--coins", "--json")
    assert json.loads(outcome.stdout)["audits"][0]["bounds"][0]["unit"] == "user"
    given[7]["user"] = 3
    result = audit(write_csv(tmp_path / "s.csv", given), "--unit", "user", "--coins")
    assert result.returncode == 2
    assert "line 9: this user has an earlier candidate" in result.stderr


def test_without_a_conclusion_no_epsilon_is_shown(tmp_path: Path) -> None:
    given = [{**row, "ref_in_1": row["included"]} for row in rows(m=0)]
    result = audit(write_csv(tmp_path / "s.csv", given), "--coins", "--epsilon", 1)
    assert result.returncode == 4
    assert "No conclusion: the members of the reference models correlate with those of the data" in " ".join(
        result.stdout.split()
    )
    audited = json.loads((tmp_path / "private" / "membership-audit.json").read_text())["audits"][0]
    assert [attempt["epsilon"] for attempt in audited["details"]["attempts"]] == [None]


def test_references_are_asked_for_where_they_are_needed(tmp_path: Path) -> None:
    alone = write_csv(tmp_path / "s.csv", [{k: row[k] for k in ("target", "included")} for row in rows()])
    assert "LiRA and RMIA need reference models" in audit(alone, "--attack", "lira-offline").stderr
    offline = [{k: v for k, v in row.items() if "_in_" not in k} for row in rows(m=0)]
    file = write_csv(tmp_path / "o.csv", offline)
    assert "ref_in_1" in audit(file, "--attack", "lira-online").stderr
    assert "needs population records" in audit(file, "--attack", "rmia-offline").stderr
    records = write_jsonl(tmp_path / "c.jsonl", [{"text": "a", "included": 1}, {"text": "", "included": 0}])
    empty = audit("--records", records, "--synthetic", records)
    assert "line 2: column 'text' must hold text" in empty.stderr
    assert audit("--records", records, "--synthetic", tmp_path / "none.jsonl").returncode == 2
