"""`dpassay audit plan`, `score`, `bound` and `report` as a person meets them: files, hashes, refusals in one line."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from audit_command import done, dpassay, refused
from printed_numbers import two_forms
from scipy import stats
from seeded_entropy import seed_entropy

from dpassay.attacks.canaries import texts as text_canaries
from dpassay.attacks.canaries.texts import numbers_in
from dpassay.auditing.canaries import plan as audit_plan
from dpassay.auditing.canaries.files import read_plan
from dpassay.auditing.files import sealed
from dpassay.audits.statistics import epsilon_one_run
from dpassay.base.number_format import format_percent, format_upper
from dpassay.data.corpora import notes

PLACES = ["Bergen", "Delft", "Ghent", "Oslo"]


def write(path: Path, texts: list[str], column: str = "text") -> Path:
    path.write_text("".join(json.dumps({column: text}) + "\n" for text in texts), encoding="utf-8")
    return path


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    """Texts with an id that is a number, a user, a label and a column of prose."""
    rows: list[dict[str, Any]] = [
        {"no": 100 + i, "who": f"user {i % 60}", "note": text, "health": label, "prose": f"{text} {i}"}
        for i, (text, label) in enumerate(notes(250, 0))
    ]
    rows[3]["note"] += " Call 12345 or 00007."
    path = tmp_path / "tickets.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def customers(tmp_path: Path) -> Path:
    path = tmp_path / "customers.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["id", "age", "place", "spent"])
        out.writerows([i, 18 + i % 60, PLACES[i % 4], f"{i % 60 / 3:.2f}"] for i in range(240))
    return path


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    """A plan of 60 keys without data."""
    done("plan", "--canaries", 60, "--epsilon", 1, "-o", tmp_path / "audit")
    return tmp_path / "audit"


def planted(folder: Path) -> list[str]:
    return [canary.text for canary in read_plan(folder).plan.planted]


def test_a_plan_holds_everything_that_is_fixed_before_the_run(tickets: Path, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    columns = ("--text", "note", "--id", "no", "--user", "who")
    result = dpassay(
        "plan", "--kind", "key", "--canaries", 80, "--like", tickets, *columns, "--epsilon", 2, "-o", folder
    )
    assert result.returncode == 0, result.stderr
    content = (folder / "private" / "manifest.json").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    assert digest in result.stdout
    assert digest in (folder / "README.md").read_text()
    assert f"was read from\n`{tickets}`. That" in (folder / "README.md").read_text()
    assert json.loads((folder / "plan.json").read_text())["manifest_sha256"] == digest
    manifest = json.loads(content)
    assert len(manifest["candidates"]) == len(manifest["included"]) == len(manifest["never"]) == 80
    keys = {canary["value"] for canary in (*manifest["candidates"], *manifest["never"])}
    assert len(keys) == 160
    assert not keys & {"12345", "00007"}
    rows = [json.loads(line) for line in (folder / "canaries.jsonl").read_text().splitlines()]
    assert [row["note"] for row in rows] == planted(folder)
    assert len(rows) == manifest["included"].count("1")
    assert all(set(row) == {"no", "who", "note", "health", "prose"} for row in rows)
    assert {row["health"] for row in rows} <= {label for _, label in notes(250, 0)}
    assert all(isinstance(row["no"], int) and re.fullmatch("[0-9a-f]{12}", row["prose"]) for row in rows)
    assert len({row["who"] for row in rows}) == len({row["no"] for row in rows}) == len(rows)
    assert "Warning: canaries have a made-up word in 'prose'" in result.stdout
    assert "canaries.jsonl" not in {path.name for path in tmp_path.iterdir()}
    for path, mode in ((folder, 0o700), (folder / "private", 0o700), (folder / "canaries.jsonl", 0o600)):
        assert path.stat().st_mode & 0o777 == mode


def test_coins_come_from_the_operating_system_and_are_independent(tmp_path: Path) -> None:
    """Two plans share 400 coins with probability 2⁻⁴⁰⁰; as many are beyond these limits with probability below 1e-8."""
    coins = []
    for name in ("a", "b"):
        done("plan", "--canaries", 400, "-o", tmp_path / name)
        coins.append(read_plan(tmp_path / name).plan.included)
    assert coins[0] != coins[1]
    assert all(139 < included.count("1") < 261 for included in coins)


def test_a_plan_says_what_it_can_show(tmp_path: Path) -> None:
    about = done("plan", "--kind", "echo", "--canaries", 300, "--epsilon", 2, "--guesses", 20, "-o", tmp_path / "a")
    assert about["ceiling"] == {"guesses": 20, "epsilon": pytest.approx(1.823, abs=1e-3)}  # −ln(.05^(−1/20) − 1)
    assert about["ceiling_of_half"] == {"guesses": 150, "epsilon": pytest.approx(3.903, abs=1e-3)}
    assert about["guesses_needed"] == 24
    [warning] = about["warnings"]
    assert "20 guesses, all right, show at most ε = 1.82272: the claim of 2 could not be refuted" in warning
    assert "(24 would do)" in warning
    assert f"Warning: {warning}." in (tmp_path / "a" / "README.md").read_text()
    about = done("plan", "--kind", "echo", "--canaries", 300, "--epsilon", 2, "-o", tmp_path / "b")
    assert (about["guesses"], about["warnings"]) == (48, [])
    about = done("plan", "--canaries", 100, "--epsilon", 8, "--delta", "1e-6", "-o", tmp_path / "c")
    assert "plan more canaries" in about["warnings"][0]
    assert about["guesses_needed"] is None


def test_a_plan_says_how_likely_it_is_to_show_it(tmp_path: Path) -> None:
    """By the binomial law: 48 guesses, each right with e²/(1 + e²), refute ε = 2 if 47 or more are right."""
    result = dpassay("plan", "--kind", "echo", "--canaries", 300, "--epsilon", 2, "-o", tmp_path / "a")
    about = json.loads((tmp_path / "a" / "plan.json").read_text())
    at_claim, *others = about["expected"]
    q = math.exp(2) / (1 + math.exp(2))
    least = int(np.argmax(stats.binom.sf(np.arange(49) - 1, 48, q) < 0.05))
    assert at_claim["generator"] == "has exactly the claimed ε"
    assert at_claim["chance"] == pytest.approx(stats.binom.sf(least - 1, 48, q), rel=1e-9)
    assert 0 < at_claim["chance"] <= 0.05
    assert [item["generator"] for item in others] == [
        "has 2 times the claimed ε", "has 4 times the claimed ε",
        "copies 1 % of its records verbatim", "copies 10 % of its records verbatim", "copies every record verbatim",
    ]  # fmt: skip
    assert others[0]["chance"] < others[1]["chance"]
    assert others[2]["chance"] < others[3]["chance"] < others[4]["chance"]
    half = about["detectable"]
    assert stats.binom.sf(least - 1, 48, 1 / (1 + math.exp(-half["epsilon"]))) == pytest.approx(0.5, rel=1e-9)
    said = " ".join((tmp_path / "a" / "README.md").read_text().split())
    alarm = format_percent(at_claim["chance"])
    for words in (
        f"- A generator that has exactly the claimed ε is refuted in {alarm} of runs (false alarms; never more than 5",
        f"(the best attack at ε = {format_upper(half['epsilon'], 3)})",
        f"or if {format_percent(half['share'], 'up')} of the planted canaries stand out",
    ):
        assert words in said
        assert words in " ".join(result.stdout.split())


@pytest.mark.slow
def test_a_plan_of_keys_says_that_few_printed_keys_show_nothing(tmp_path: Path) -> None:
    """½⁵ is below 5 % and ½⁴ is not; with δ > 0 also 2mδ/v must be, so 1000 keys at δ = 10⁻³ take 40."""
    for delta, least in ((0.0, 5), (1e-3, 40)):
        folder = tmp_path / str(delta)
        result = dpassay("plan", "--epsilon", 1, "--delta", delta, "-o", folder)
        said = f"Fewer than {least} show nothing, ε = 0; so a generator that prints no key shows nothing"
        assert said in result.stdout
        assert said in (folder / "README.md").read_text()
        ceilings = json.loads((folder / "plan.json").read_text())["ceilings"]
        for item in ceilings:
            shown = epsilon_one_run(1000, *2 * [item["guesses"]], delta=delta, confidence=0.95, rule="adaptive").value
            assert item["epsilon"] == shown
            assert (shown > 0) == (item["guesses"] >= least)


@pytest.mark.parametrize("more", [(), ("--scorings", 2)])
def test_a_claim_that_cannot_be_refuted_for_lack_of_confidence_is_not_planned(
    more: tuple[object, ...], tickets: Path, tmp_path: Path
) -> None:
    """With --holdout each audit would have a confidence of 0.95 or more, but all of them together do not."""
    plan = ("plan", "--canaries", 60, "--confidence", 0.9, *more, "-o", tmp_path / "a")
    said = (
        "a claim is refuted at confidence 0.95 or more, not at 0.9; give --confidence 0.95, or plan without --epsilon"
    )
    assert said in refused(*plan, "--epsilon", 1)
    assert said in refused(*plan, "--epsilon", 1, "--like", tickets, "--text", "note", "--holdout", 0.5)
    assert not (tmp_path / "a").exists()
    assert done(*plan)["confidence"] == 0.9


def test_a_manifest_that_tests_a_claim_at_too_low_a_confidence_is_refused(tmp_path: Path) -> None:
    """Written by hand, or by version 0.2, which only warned: two files would each be bounded at 0.95."""
    folder = tmp_path / "audit"
    done("plan", "--canaries", 60, "--epsilon", 1, "--scorings", 2, "-o", folder)
    path, about = folder / "private" / "manifest.json", folder / "plan.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"confidence": 0.9}))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    about.write_text(json.dumps(json.loads(about.read_text()) | {"manifest_sha256": digest}))
    synthetic = write(tmp_path / "s.jsonl", ["x"])
    for arguments in (("score", folder, synthetic), ("bound", folder), ("report", folder)):
        assert "tests a claim at confidence 0.9, but a claim is refuted at 0.95 or more" in refused(*arguments)


@pytest.mark.grid
@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (("--unit", "group(3)"), "copies 10 % of the canaries verbatim"),
        (("--unit", "user", "--copies", 3), "copies 10 % of the canaries verbatim"),
        ((), "copies 10 % of its records verbatim"),
    ],
)
def test_what_copies_a_share_of_its_records_copies_more_of_the_groups(
    unit: tuple[object, ...], said: str, tmp_path: Path
) -> None:
    about = done("plan", "--canaries", 60, *unit, "-o", tmp_path / "a")
    assert [item["generator"] for item in about["expected"]][-2] == said
    assert said in (tmp_path / "a" / "README.md").read_text()


def test_a_run_without_protection_is_the_positive_control(planned: Path, tmp_path: Path) -> None:
    """It is no planned file and bounds nothing; without one, the result says what is not known."""
    silent = write(tmp_path / "s.jsonl", ["x"])
    off = write(tmp_path / "off.jsonl", [*planted(planned), "x"])
    assert done("score", planned, off, "--unprotected")["rows"] == len(planted(planned)) + 1
    assert "has scores of a run without protection only" in refused("bound", planned)
    assert "off.jsonl: was scored as the output of a run without protection" in refused("score", planned, off)
    done("score", planned, silent)
    assert "s.jsonl: was scored as the output of a run with protection" in refused(
        "score", planned, silent, "--unprotected"
    )
    result = done("bound", planned)
    assert (result["refuted"], [file["file"] for file in result["synthetic"]]) == (False, ["s.jsonl"])
    assert result["unprotected"]["file"] == "off.jsonl"
    assert result["audit"]["details"]["unprotected"]["epsilon"] > 1
    assert "With protection off (off.jsonl) the same audit shows ε ≥ " in result["audit"]["conclusion"]
    report = done("report", planned)
    assert report["unprotected"]["file"] == "off.jsonl"
    assert "With protection off (off.jsonl)" in (planned / "report.html").read_text()
    blind = write(tmp_path / "blind.jsonl", ["y"])  # a run without protection may be scored when the result is known
    done("score", planned, blind, "--unprotected")
    assert "was computed from other scores" in refused("report", planned)
    assert "whatever could have been shown" in done("bound", planned)["audit"]["conclusion"]


def test_without_a_run_without_protection_that_is_said(planned: Path, tmp_path: Path) -> None:
    done("score", planned, write(tmp_path / "s.jsonl", ["x"]))
    assert "No run without protection was scored" in dpassay("bound", planned).stdout
    done("report", planned)
    assert "none was scored, so it is not known whether this attack sees leaks" in (planned / "report.html").read_text()


def test_copies_are_records_of_one_user_or_group(tickets: Path, tmp_path: Path) -> None:
    for name, unit, copies in (("u", ("--unit", "user", "--copies", 3), 3), ("g", ("--unit", "group(4)"), 4)):
        columns = ("--text", "note", "--user", "who", "--id", "no")
        done("plan", "--canaries", 50, "--like", tickets, *columns, *unit, "-o", tmp_path / name)
        rows = [json.loads(line) for line in (tmp_path / name / "canaries.jsonl").read_text().splitlines()]
        texts = planted(tmp_path / name)
        assert Counter(row["note"] for row in rows) == dict.fromkeys(texts, copies)
        assert len({(row["note"], row["who"]) for row in rows}) == len({row["who"] for row in rows}) == len(texts)
        assert len({row["no"] for row in rows}) == len(rows)
        done("score", tmp_path / name, write(tmp_path / f"{name}.jsonl", texts, "note"))
        audit = done("bound", tmp_path / name)["audit"]
        assert audit["trials"] == 50
        assert audit["rates"][0]["hits"] == len(texts)
        assert audit["bounds"][0]["unit"] == {"u": "user", "g": "group(4)"}[name]


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
def test_rows_have_the_format_and_the_types_of_the_data(customers: Path, tmp_path: Path, ending: str) -> None:
    with customers.open(newline="") as file:
        rows = list(csv.DictReader(file))
    typed = [{"id": int(r["id"]), "age": int(r["age"]), "place": r["place"], "spent": float(r["spent"])} for r in rows]
    like = tmp_path / f"like{ending}"
    if ending == ".csv":
        like = customers
    elif ending == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(typed), like)
    else:
        like.write_text("".join(json.dumps(row) + "\n" for row in typed))
    folder = tmp_path / "audit"
    about = done("plan", "--kind", "table", "--canaries", 40, "--like", like, "--id", "id", "-o", folder)
    path = folder / about["canaries"]["file"]
    assert path.suffix == ending
    if ending == ".parquet":
        assert pyarrow.parquet.read_schema(path).equals(pyarrow.parquet.read_schema(like))
        results = pyarrow.parquet.read_table(path).to_pylist()
    elif ending == ".csv":
        assert path.read_text().splitlines()[0] == "id,age,place,spent"
        with path.open(newline="") as file:
            results = list(csv.DictReader(file))
    else:
        results = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = {type(value) for row in results for name, value in row.items() if name == "age"}
    assert kinds == {str if ending == ".csv" else int}
    assert {str(row["age"]) for row in results} <= {row["age"] for row in rows}
    assert {row["place"] for row in results} <= {*PLACES}
    assert {float(row["spent"]) for row in results} <= {float(row["spent"]) for row in rows}
    known = {(str(row["age"]), row["place"], float(row["spent"])) for row in rows}
    assert not known & {(str(row["age"]), row["place"], float(row["spent"])) for row in results}
    copied = like.with_name(f"synthetic{ending}")
    copied.write_bytes(like.read_bytes())
    assert done("score", folder, copied)["rows"] == 240
    audit = done("bound", folder, codes=(4,))["audit"]  # four guesses show less than half of the time that all leaks
    assert audit["controls"][0]["hits"] == 4
    assert "a test of this size has less than 50 % power to show a leak" in audit["conclusion"]
    assert done("report", folder)["audit"]["conclusion"] == audit["conclusion"]
    assert "No conclusion" in (folder / "report.html").read_text()


def test_the_whole_way_of_keys(planned: Path, tmp_path: Path) -> None:
    digest = read_plan(planned).manifest_sha256
    texts = planted(planned)
    assert (
        done("score", planned, write(tmp_path / "s.jsonl", [*texts, "x"]), "--expect", digest)["rows"] == len(texts) + 1
    )
    result = dpassay("bound", planned, "--expect", digest)
    assert result.returncode == 1, result.stderr  # all of about 30 guesses are right, and 10 would do
    assert f"{len(texts)} of {len(texts)} guesses are right: a leak that shows ε ≥ " in result.stdout
    outcome = json.loads((planned / "bound.json").read_text())
    assert outcome["refuted"] is True
    assert outcome["manifest_sha256"] == digest
    report = done("report", planned, "--expect", digest)
    assert report["plan"]["manifest_expected"] is True
    page = (planned / "report.html").read_text()
    assert "REFUTED" in page
    assert digest in page
    assert not re.search(r"https?://|<script|@import|url\((?!#)", page)
    assert two_forms(page, random=True) == []
    words = re.sub(r"<[^>]*>", " ", re.sub(r"<(style|svg).*?</(style|svg)>", "", page, flags=re.DOTALL))
    words = re.sub(r"\b[0-9a-f]{64}\b", " ", words)  # five digits inside a hash may be those of a key
    assert not {key for text in texts for key in numbers_in(text)} & set(re.findall(r"(?<![\d.])\d+(?![\d.])", words))
    assert json.loads((planned / "report.json").read_text()) == report
    assert (planned / "report.html").stat().st_mode & 0o777 == 0o600


def test_nothing_is_shown_of_a_generator_that_writes_nothing(planned: Path, tmp_path: Path) -> None:
    assert "holds no text" in refused("score", planned, write(tmp_path / "empty.jsonl", []))
    assert done("score", planned, write(tmp_path / "word.jsonl", ["x"]))["rows"] == 1
    result = dpassay("bound", planned)
    assert result.returncode == 0
    assert "no canary is guessed to be in the data: no leak is shown" in result.stdout
    assert json.loads((planned / "bound.json").read_text())["refuted"] is False
    report = done("report", planned)
    assert (report["refuted"], report["audit"]["bounds"][0]["value"]) == (False, 0)
    page = (planned / "report.html").read_text()
    assert "No leak shown" in page
    assert not re.search("passed|is private", page)


def test_without_a_claim_nothing_is_refuted_and_the_page_has_no_scale(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    done("plan", "--canaries", 60, "-o", folder)
    done("score", folder, write(tmp_path / "s.jsonl", [*planted(folder), "x"]))
    assert dpassay("bound", folder).returncode == 0
    done("report", folder)
    page = (folder / "report.html").read_text()
    assert "A leak is shown" in page
    assert 'id="figure-rates"' in page
    assert 'id="figure-scale"' not in page


def test_names_cannot_break_out_of_the_page(planned: Path, tmp_path: Path) -> None:
    name = '<img src=x onerror="alert(1)">{{7*7}}.jsonl'
    done("score", planned, write(tmp_path / name, [*planted(planned), "x"]))
    done("bound", planned)
    done("report", planned)
    page = (planned / "report.html").read_text()
    assert "<img" not in page
    assert "&lt;img src=x" in page
    assert "{{7*7}}" in page


def test_a_page_of_echoes_with_a_failed_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holdout canaries are printed, as if the manifest had been read instead of the canaries' file; seeded."""
    seed_entropy(monkeypatch, 0)
    folder = tmp_path / "audit"
    done("plan", "--kind", "echo", "--canaries", 120, "--epsilon", 1, "-o", folder)
    manifest = read_plan(folder).plan
    every = [canary.text for canary in manifest.candidates]
    done("score", folder, write(tmp_path / "s.jsonl", every))
    result = dpassay("bound", folder)
    assert result.returncode == 4
    assert result.stdout.startswith("No conclusion: s.jsonl: ")
    assert "the manifest has leaked into the run" in result.stdout
    assert json.loads((folder / "bound.json").read_text())["refuted"] is None
    assert done("report", folder)["refuted"] is None
    page = (folder / "report.html").read_text()
    assert "What went wrong" in page
    assert "No conclusion" in page


def test_one_file_may_be_scored_again_until_a_result_is_seen(planned: Path, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.jsonl", ["a"], "body"), write(tmp_path / "b.jsonl", ["b"], "body")
    assert "there is no column 'text'" in refused("score", planned, first)
    assert not (planned / "scores.json").exists()
    for _ in range(2):
        done("score", planned, first, "--text", "body")
    assert len(json.loads((planned / "scores.json").read_text())["scorings"]) == 1
    assert "would be file 2 of 1 planned" in refused("score", planned, second, "--text", "body")
    done("bound", planned)
    assert "its result was computed, so nothing more is scored" in refused("score", planned, first, "--text", "body")


def test_planned_files_are_paid_for(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    done("plan", "--canaries", 60, "--scorings", 2, "--epsilon", 1, "-o", folder)
    for name, texts in (("none", ["x"]), ("all", [*planted(folder), "x"])):
        done("score", folder, write(tmp_path / f"{name}.jsonl", texts))
    result = done("bound", folder)
    assert result["refuted"] is True
    assert [bound["confidence"] for bound in result["audit"]["bounds"]] == [0.975, 0.975]
    assert [bound["value"] > 1 for bound in result["audit"]["bounds"]] == [False, True]
    assert "would be file 3 of 2" not in refused(
        "score", folder, write(tmp_path / "c.jsonl", ["y"])
    )  # the result is seen
    done("report", folder)
    assert "none.jsonl" in (folder / "report.html").read_text()


def test_changed_files_are_refused(planned: Path, tmp_path: Path) -> None:
    synthetic = write(tmp_path / "s.jsonl", [*planted(planned), "x"])
    manifest, scores, bound = (planned / name for name in ("private/manifest.json", "scores.json", "bound.json"))
    assert "holds no scores; run `dpassay audit score" in refused("bound", planned)
    done("score", planned, synthetic)
    assert "holds no bound; run `dpassay audit bound" in refused("report", planned)
    done("bound", planned)

    def changed(path: Path, old: str, new: str, *arguments: object) -> str:
        kept = path.read_text()
        assert old in kept
        path.write_text(kept.replace(old, new, 1))
        line = refused(*arguments)
        path.write_text(kept)
        return line

    coins = read_plan(planned).plan.included
    assert "was changed since it was planned" in changed(manifest, coins, coins[::-1] + " ", "bound", planned)
    assert "was changed since it was written" in changed(scores, "1.0", "0.0", "bound", planned)
    assert "was changed since it was written" in changed(
        bound, '"refuted": true', '"refuted": false', "report", planned
    )
    assert "s.jsonl: was changed since it was scored" in changed(synthetic, "5", "6", "bound", planned)
    assert "it is another plan's, or changed" in refused("bound", planned, "--expect", "0" * 64)
    assert dpassay("bound", planned).returncode == 1
    synthetic.unlink()
    result = dpassay("bound", planned)
    assert "s.jsonl was removed after it was scored, so it could not be checked" in result.stdout
    done("report", planned)
    assert "it was missing when the bound was computed" in (planned / "report.html").read_text()


def test_a_forged_bound_is_compared_with_the_scores(planned: Path, tmp_path: Path) -> None:
    """Its own hash can be computed by whoever changes it."""
    done("score", planned, write(tmp_path / "s.jsonl", [*planted(planned), "x"]))
    done("bound", planned)
    path = planned / "bound.json"
    document = json.loads(path.read_text())
    audit = document["audit"]
    assert document["refuted"] is True
    (bound,) = audit["bounds"]
    for change in (
        {"refuted": False},
        {"audit": audit | {"bounds": []}},
        {"audit": audit | {"bounds": [bound | {"value": bound["value"] / 2}]}},
        {"audit": audit | {"bounds": [bound | {"confidence": 0.9}]}},
        {"audit": audit | {"conclusion": "nothing was found"}},
        {"claim": {"epsilon": 100.0, "delta": 0.0}},
        {"synthetic": [document["synthetic"][0] | {"file": "another.jsonl"}]},
    ):
        path.write_text(json.dumps(sealed({key: v for key, v in (document | change).items() if key != "sha256"})))
        assert "bound.json: is not what the scores in" in refused("report", planned)
    path.write_text(json.dumps(document))
    done("report", planned)


def test_who_scores_again_from_the_manifest_sees_that_scores_were_written_by_hand(
    planned: Path, tmp_path: Path
) -> None:
    synthetic = write(tmp_path / "s.jsonl", [*planted(planned)[:5], "x"])
    done("score", planned, synthetic)
    document = json.loads((planned / "scores.json").read_text())
    true = document["scorings"][0].copy()
    document["scorings"][0]["candidates"] = [float(coin) for coin in read_plan(planned).plan.included]
    (planned / "scores.json").write_text(json.dumps(sealed({k: v for k, v in document.items() if k != "sha256"})))
    digest = hashlib.sha256((planned / "private" / "manifest.json").read_bytes()).hexdigest()
    assert dpassay("bound", planned, "--expect", digest).returncode == 1  # which the guide says
    again = tmp_path / "again"
    shutil.copytree(planned, again, ignore=shutil.ignore_patterns("scores.json", "bound.json"))
    done("score", again, synthetic, "--expect", digest)
    assert json.loads((again / "scores.json").read_text())["scorings"] == [true]


def test_scores_that_list_a_file_twice_are_refused(planned: Path, tmp_path: Path) -> None:
    """Else a file that is gone would count as compared with its hash, by another that is there."""
    done("score", planned, write(tmp_path / "s.jsonl", [*planted(planned)[:5], "x"]))
    path = planned / "scores.json"
    document = json.loads(path.read_text())
    gone = document["scorings"][0] | {"file": "gone.jsonl"}
    document["scorings"].append(gone)
    path.write_text(json.dumps(sealed({key: value for key, value in document.items() if key != "sha256"})))
    assert "scores.json: has one file twice; score again" in refused("bound", planned)


def test_files_without_what_they_should_hold_are_refused(planned: Path) -> None:
    (planned / "scores.json").write_text(json.dumps(sealed({"some": "thing"})))
    assert "was made with another manifest" in refused("bound", planned)
    assert "was made with another manifest" in refused("score", planned, planned / "plan.json")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_of_canaries_end_as_those_of_the_data(end: str, customers: Path, tmp_path: Path) -> None:
    customers.write_bytes(customers.read_bytes().replace(b"\r\n", end.encode()))
    plan = ("plan", "--kind", "table", "--canaries", 10, "--like", customers, "--id", "id", "--confidence", 0.999999)
    result = dpassay(*plan, "-o", tmp_path / "audit")
    assert "With confidence 0.999999 and" in result.stdout
    content = (tmp_path / "audit" / "canaries.csv").read_bytes()
    assert content.count(end.encode()) == content.count(b"\n") > 1
    assert (b"\r" in content) == (end == "\r\n")


def test_scores_of_another_plan_are_refused(planned: Path, tmp_path: Path) -> None:
    done("plan", "--canaries", 60, "-o", tmp_path / "other")
    done("score", tmp_path / "other", write(tmp_path / "s.jsonl", ["x"]))
    (planned / "scores.json").write_bytes((tmp_path / "other" / "scores.json").read_bytes())
    assert "was made with another manifest" in refused("bound", planned)
    assert "was made with another manifest" in refused("score", planned, tmp_path / "s.jsonl")


def test_wrong_synthetic_files_are_refused(planned: Path, tmp_path: Path) -> None:
    (tmp_path / "wide.jsonl").write_bytes('{"text": "é"}\n'.encode("utf-16"))
    (tmp_path / "bad.jsonl").write_text("nothing\n")
    (tmp_path / "a.txt").write_text("x")
    assert "is not UTF-8 text" in refused("score", planned, tmp_path / "wide.jsonl")
    assert "bad.jsonl, line 1: is not JSON" in refused("score", planned, tmp_path / "bad.jsonl")
    assert "its name ends in '.txt'" in refused("score", planned, tmp_path / "a.txt")
    assert "there is no such file" in refused("score", planned, tmp_path / "none.jsonl")
    assert "holds the canaries themselves" in refused("score", planned, planned / "canaries.jsonl")
    assert "holds no plan; make one with" in refused("score", tmp_path, planned / "canaries.jsonl")
    assert not (planned / "scores.json").exists()


@pytest.mark.parametrize("kind", ["key", "table"])
def test_files_of_the_plan_are_no_output_of_a_generator(
    kind: str, tickets: Path, customers: Path, tmp_path: Path
) -> None:
    """Neither as a planned file nor as a control: the generator's input holds every planted canary."""
    folder = tmp_path / "audit"
    like = ("--like", tickets, "--text", "note", "--id", "no") if kind == "key" else ("--like", customers)
    done("plan", "--kind", kind, "--canaries", 60, *like, "--epsilon", 1, "--holdout", 0.5, "-o", folder)
    ending = "jsonl" if kind == "key" else "csv"
    for name, said in (
        ("canaries", "holds the canaries themselves"),
        ("input", "is what the generator reads, with the planted canaries in it"),
        ("private/source", "is the source of the plan, which the generator reads"),
        ("private/holdout", "is the holdout of the plan, which the generator does not read"),
    ):
        copied = tmp_path / f"synthetic.{ending}"
        copied.write_bytes((folder / f"{name}.{ending}").read_bytes())
        for path in (folder / f"{name}.{ending}", copied):
            wrote = "name the file that the generator wrote"
            assert refused("score", folder, path).endswith(f"{path}: {said}; {wrote}")
            assert refused("score", folder, path, "--unprotected").endswith(f"{said}; {wrote} with its protection off")
    assert not (folder / "scores.json").exists()


def test_a_column_of_text_is_named_only_where_there_is_text(customers: Path, planned: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    done("plan", "--kind", "table", "--canaries", 40, "--like", customers, "--id", "id", "-o", folder)
    assert "canaries of kind table are rows and have no column of text; leave --text out" in refused(
        "score", folder, customers, "--text", "place"
    )
    assert "--text names a column of a file" in refused("score", planned, "--model", "builtin", "--text", "x")


def test_a_column_that_synthetic_rows_lack(customers: Path, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    done("plan", "--kind", "table", "--canaries", 40, "--like", customers, "--id", "id", "-o", folder)
    (tmp_path / "s.csv").write_text("age,spent\n30,1\n")
    assert "there is no column 'place'; the columns are 'age', 'spent'" in refused("score", folder, tmp_path / "s.csv")
    (tmp_path / "s.csv").write_text("")
    assert "the synthetic table has no rows" in refused("score", folder, tmp_path / "s.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--canaries", 1), "canaries must be"),
        (("--kind", "word"), "kind must be one of"),
        (("--kind", "table"), "name it with --like"),
        (("--guesses", 5), "leave --guesses out"),
        (("--kind", "echo", "--canaries", 100, "--guesses", 51), "at most half of the 100 candidates"),
        (("--copies", 2), "a unit of 2 records is --unit 'group(2)' or --unit user"),
        (("--unit", "secret"), "cannot test unit secret"),
        (("--unit", "house"), "unit must be record, user, user(k), group(k) or secret"),
        (("--unit", "group(2000000)"), "at unit group(2000000) k must be at most 500000, not 2000000"),
        (("--unit", "user", "--copies", 500_001), "at unit user copies must be at most 500000, not 500001"),
        (("--unit", "group(300000)", "--canaries", 4), "4 canaries of 300000 records are more than"),
        (("--delta", 0.1), "give --epsilon too"),
        (("--epsilon", -1), "epsilon must"),
        (("--epsilon", 1, "--delta", 1), "delta must"),
        (("--confidence", 1), "confidence must"),
        (("--scorings", 0), "scorings must be at least 1"),
        (("--canaries", 50_001), "100000 numbers like ##### are not in the data, but 100002 are needed"),
        (("--unit", "user", "--user", "text"), "--text text, --user text: one column cannot be two of them"),
        (("--kind", "table", "--like", "x.csv", "--id", "a", "--user", "a"), "--id a, --user a: one column cannot"),
        (("--like", "nothing.jsonl"), "there is no such file"),
    ],
)
def test_plans_that_cannot_be(arguments: tuple[object, ...], message: str, tmp_path: Path) -> None:
    assert message in refused("plan", *arguments, "-o", tmp_path / "audit")
    assert list(tmp_path.iterdir()) == []


def test_wrong_columns_of_the_data(tickets: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "audit")
    assert "name the text column with --text" in refused("plan", "--like", tickets, *out)
    like = ("--like", tickets, "--text", "note")
    assert "name the id column with --id" in refused("plan", *like, "--id", "x", *out)
    assert "name the column of users with --user" in refused("plan", *like, "--unit", "user", *out)
    assert "column 'no' must hold text" in refused("plan", "--like", tickets, "--text", "no", *out)
    (tmp_path / "empty.csv").write_text("text\n")
    assert "holds no rows; canaries are modelled on rows" in refused("plan", "--like", tmp_path / "empty.csv", *out)
    assert not (tmp_path / "audit").exists()


def test_a_folder_that_is_there_is_kept(planned: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in planned.rglob("*") if path.is_file()}
    assert "exists and is not an empty folder" in refused("plan", "-o", planned)
    assert {path: path.read_bytes() for path in planned.rglob("*") if path.is_file()} == before
    (tmp_path / "empty").mkdir()
    done("plan", "--canaries", 10, "-o", tmp_path / "empty")


@pytest.mark.parametrize("at", ["readme", "write_rows", "hashed"])
def test_an_interrupted_plan_leaves_nothing(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(audit_plan, at, interrupt)
    assert dpassay("plan", "--canaries", 10, "-o", tmp_path / "audit").returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_scores_are_written_whole_or_not_at_all(planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic = write(tmp_path / "s.jsonl", ["x"])
    done("score", planned, synthetic)
    before = (planned / "scores.json").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "no space left on device" in refused("score", planned, synthetic)
    assert (planned / "scores.json").read_bytes() == before
    assert {path.name for path in planned.iterdir()} == {
        "README.md", "canaries.jsonl", "plan.json", "private", "scores.json",
    }  # fmt: skip


def test_a_coin_moves_its_own_record_only(tmp_path: Path, tickets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all else equal, the planted rows of fewer coins are a part of those of more, ids and users included."""
    rows = []
    for included in (False, True):
        seed_entropy(monkeypatch, 0)
        coins = [True] * 9 + [included]
        monkeypatch.setattr(text_canaries, "draw_coins", lambda count, coins=coins: coins)
        folder = tmp_path / str(included)
        audit_plan.plan(folder, kind="echo", canaries=10, like=tickets, text="note", id="no", user="who", guesses=5)
        rows.append((folder / "canaries.jsonl").read_text().splitlines())
    assert rows[1][:-1] == rows[0]
    assert len(rows[1]) == 10
