"""`dpassay audit text` and `dpassay audit table` as a person meets them: what is found, where it goes, errors."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import command
import numpy as np
import pytest

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.bounds import Bound, Direction, Interval, Rigor
from dpassay.attacks.released.holdout import Units
from dpassay.auditing.released.design import HoldoutSettings
from dpassay.auditing.released.run import HoldoutAudit
from dpassay.audits.result import AuditResult, Rate
from dpassay.cli.audit.released import print_audits

SECRET = "4111 1111 1111 1111"
CARD_DIGITS = re.compile(r"\b4111\b|41111111")  # four digits may be inside a hash, whose key is drawn anew each time
ANOTHER = "jo.doe@example.org"


def audit(*arguments: object) -> command.Result:
    return command.run("audit", *arguments)


def lines(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sentences(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"word{x}" for x in rng.integers(0, 500, 20)) for _ in range(count)]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Of 60 source records ten are repeated, one of them with a card number; of 60 holdout records none."""
    seen, unseen, own = sentences(60, 1), sentences(60, 2), sentences(40, 3)
    seen[0] += f" card {SECRET}"
    seen[30] += f" write to {ANOTHER}"
    (tmp_path / "run" / "private").mkdir(mode=0o700, parents=True)
    return {
        "run": lines(tmp_path / "run" / "private" / "synthetic.jsonl", ({"text": t} for t in seen[:10] + own)).parents[
            1
        ],
        "seen": lines(tmp_path / "seen.jsonl", ({"note": t, "who": f"u{i // 2}"} for i, t in enumerate(seen))),
        "unseen": lines(tmp_path / "unseen.jsonl", ({"note": t, "who": f"v{i // 2}"} for i, t in enumerate(unseen))),
    }


def text(files: dict[str, Path], *more: object) -> command.Result:
    return audit("text", files["run"], "--source", files["seen"], "--holdout", files["unseen"], "--text", "note", *more)


def found(result: command.Result) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    out: dict[str, Any] = json.loads(result.stdout)
    return out


def by_name(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in result["audits"]}


def test_records_and_personal_data_are_found_and_kept_private(files: dict[str, Path]) -> None:
    shown = text(files, "--json")
    result = found(shown)
    path = files["run"] / "private" / "text-audit.json"
    key = path.with_name("personal-data-key.json")
    assert json.loads(path.read_text()) == result
    assert [file.stat().st_mode & 0o777 for file in (path, key, path.parent)] == [0o600, 0o600, 0o700]
    audits = by_name(result)
    assert list(audits) == ["verbatim_extraction", "near_verbatim_extraction", "longest_runs", "personal_data"]
    for name in ("verbatim_extraction", "near_verbatim_extraction"):
        assert [(rate["hits"], rate["trials"]) for rate in audits[name]["rates"]] == [(10, 60), (0, 60)]
        assert audits[name]["p_value"] < 0.001
        assert audits[name]["bounds"] == []
        assert audits[name]["rates"][0]["confidence"] == pytest.approx(1 - 0.05 / 8)
    assert audits["longest_runs"]["details"]["longest_run"]["source"]["quantiles"]["1"] >= 20
    assert [(rate["hits"], rate["trials"]) for rate in audits["personal_data"]["rates"]] == [(1, 2), (0, 0)]
    counts = result["personal_data"]["counts"]
    assert counts["payment_card"]["source"] == 1
    assert counts["email"] == {
        "source": 0, "holdout": 0, "both": 0, "neither": 0, "occurrences": 0, "known_source": 1, "known_holdout": 0
    }  # fmt: skip
    for index in (shown.stdout, shown.stderr, path.read_text(), key.read_text()):
        assert not CARD_DIGITS.search(index)
        assert "jo.doe" not in index


def test_hashes_of_two_audits_compare(files: dict[str, Path]) -> None:
    first, again = (found(text(files, "--json"))["personal_data"]["values"] for _ in range(2))
    assert first == again
    (files["run"] / "private" / "personal-data-key.json").unlink()
    other = found(text(files, "--json"))["personal_data"]["values"]
    assert [value["hash"] for value in first] != [value["hash"] for value in other]


def test_a_claim_is_refuted_by_all_attacks_together(files: dict[str, Path]) -> None:
    """Ten guesses, all right, at 1 − .05/4 show −ln(.0125^(−1/10) − 1) = .60: above .5, and below .7."""
    for claimed, refuted in ((0.5, True), (0.7, False)):
        shown = text(files, "--coins", "--epsilon", claimed, "--json")
        assert shown.returncode == (1 if refuted else 0), shown.stderr
        result = json.loads(shown.stdout)
        assert (result["claim"], result["refuted"]) == ({"epsilon": claimed, "delta": 0.0}, refuted)
        assert json.loads((files["run"] / "private" / "text-audit.json").read_text()) == result
        said = by_name(result)["verbatim_extraction"]["conclusion"]
        assert f"{'above' if refuted else 'not above'} the claim of ε = {claimed}" in said
        assert ("has 50 % power to refute the claim if" in said) is not refuted
        assert ("is not refuted by these attacks; that does not support it" in result["conclusion"]) is not refuted
    in_words = text(files, "--coins", "--epsilon", 0.5)
    assert in_words.returncode == 1
    assert "the claim, pure differential privacy with ε = 0.5, allows 0.5" in " ".join(in_words.stdout.split())
    with_delta = text(files, "--coins", "--epsilon", 0.2, "--delta", 1e-6, "--json")
    assert with_delta.returncode == 1
    assert json.loads(with_delta.stdout)["claim"] == {"epsilon": 0.2, "delta": 1e-6}


def test_a_claim_is_not_refuted_below_the_confidence_that_it_takes(files: dict[str, Path]) -> None:
    shown = text(files, "--coins", "--epsilon", 0.1, "--confidence", 0.9, "--json")
    assert shown.returncode == 0
    result = json.loads(shown.stdout)
    assert result["refuted"] is False
    assert max(bound["value"] for audit in result["audits"] for bound in audit["bounds"]) > 0.1
    assert result["conclusion"].endswith("Refuting a claim takes confidence 0.95 or more.")


def test_a_claim_needs_coins(files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    table = ("table", tmp_path / "t.csv", "--source", tmp_path / "t.csv", "--holdout", tmp_path / "t.csv")
    for result in (text(files, "--epsilon", 1), audit(*table, "--epsilon", 1)):
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith("dpassay: --epsilon needs --coins: without an independent fair coin")
        assert result.stderr.count("\n") == 1
    wrong = text(files, "--coins", "--epsilon", -1)
    assert (wrong.returncode, "epsilon must" in wrong.stderr) == (2, True)
    assert not (files["run"] / "private" / "text-audit.json").exists()


def test_a_table_is_tested_against_a_claim(tmp_path: Path) -> None:
    """The table repeats every row of the source and none of the holdout; a claim without limit stands."""
    rng = np.random.default_rng(0)
    rows = [f"{a},{b:.3f}\n" for a, b in zip(rng.integers(0, 9, 120), rng.random(120), strict=True)]
    for name, part in (("seen", rows[:60]), ("unseen", rows[60:]), ("made", rows[:60])):
        (tmp_path / f"{name}.csv").write_text("a,b\n" + "".join(part))
    sides = ("--source", tmp_path / "seen.csv", "--holdout", tmp_path / "unseen.csv", "--coins")
    for claimed, code in ((1, 1), (9, 0)):
        result = audit("table", tmp_path / "made.csv", *sides, "--epsilon", claimed, "--json")
        assert result.returncode == code, result.stderr
        assert json.loads(result.stdout)["refuted"] is bool(code)


def test_with_coins_there_is_an_epsilon(files: dict[str, Path]) -> None:
    bounds = by_name(found(text(files, "--coins", "--json")))["verbatim_extraction"]["bounds"]
    # Ten guesses, all right, at confidence 1 − .05/4: −ln(.0125^(−1/10) − 1).
    assert [bound["value"] for bound in bounds] == [pytest.approx(-np.log(0.0125**-0.1 - 1))]
    assert (bounds[0]["adjacency"], bounds[0]["unit"], bounds[0]["rigor"]) == ("add_remove", "record", "finite_sample")


def test_a_user_is_one_unit(files: dict[str, Path]) -> None:
    result = found(text(files, "--user", "who", "--json"))
    assert result["units"] == {"source": 30, "holdout": 30, "copies": 60, "in_both": 0}
    assert by_name(result)["verbatim_extraction"]["rates"][0]["hits"] == 5


def test_people_get_tables(files: dict[str, Path]) -> None:
    result = text(files)
    assert result.returncode == 0
    assert result.stdout.startswith("PRIVATE.")
    for word in ("10/60", "payment card", "nothing follows for ε", "text-audit.json"):
        assert word in " ".join(result.stdout.split())
    assert not CARD_DIGITS.search(result.stdout)
    assert text(files, "-q").stdout == ""


HEADER = ["id", "age", "income", "job"]


def rows(count: int, seed: int) -> list[list[Any]]:
    rng = np.random.default_rng(seed)
    columns = (rng.integers(18, 80, count), np.round(rng.normal(40_000, 9000, count), 2), rng.integers(0, 4, count))
    return [[f"{seed}-{i}", int(a), float(b), f"job{c}"] for i, (a, b, c) in enumerate(zip(*columns, strict=True))]


def write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    seen, unseen, own = rows(80, 1), rows(80, 2), rows(60, 3)
    return {
        "synthetic": write(tmp_path / "synthetic.csv", HEADER[1:], [row[1:] for row in seen[:20] + own]),
        "seen": write(tmp_path / "seen.csv", HEADER, seen),
        "unseen": lines(tmp_path / "unseen.jsonl", (dict(zip(HEADER, row, strict=True)) for row in unseen)),
    }


def table(files: dict[str, Path], *more: object) -> command.Result:
    return audit("table", files["synthetic"], "--source", files["seen"], "--holdout", files["unseen"], *more)


def test_rows_are_found(tables: dict[str, Path]) -> None:
    result = found(table(tables, "--secret", "income", "--coins", "--json"))
    assert json.loads((tables["synthetic"].parent / "private" / "table-audit.json").read_text()) == result
    assert result["columns"] == {"numeric": ["age", "income"], "categorical": ["job"]}
    assert result["used"] == 160
    audits = by_name(result)
    assert list(audits) == ["exact_match", "closest_record", "attribute_inference", "singling_out"]
    assert [(rate["hits"], rate["trials"]) for rate in audits["exact_match"]["rates"]] == [(20, 80), (0, 80)]
    assert audits["exact_match"]["bounds"][0]["value"] == pytest.approx(-np.log(0.0125 ** (-1 / 20) - 1))
    assert audits["closest_record"]["rates"][0]["hits"] + audits["closest_record"]["rates"][1]["hits"] == 16
    assert len(audits["attribute_inference"]["rates"]) == 4
    assert len(audits["singling_out"]["rates"]) == 8


def test_all_intervals_of_an_audit_hold_jointly(tables: dict[str, Path]) -> None:
    """Six attacks, two of them guesses of columns: the errors of the intervals of all rates add up to β, and so do
    those of the bounds. Difference and risk follow from the rates of source and holdout."""
    options = ("--secret", "income", "--secret", "job", "--link", "age", "--coins", "--confidence", 0.9, "--json")
    audits = by_name(found(table(tables, *options)))
    guessed = ["attribute_inference (income)", "attribute_inference (job)"]
    assert list(audits) == ["exact_match", "closest_record", "linkability", *guessed, "singling_out"]
    rates = [rate for audit in audits.values() for rate in audit["rates"]]
    assert sum(1 - rate["confidence"] for rate in rates) == pytest.approx(0.1, abs=1e-9)
    assert sum(1 - bound["confidence"] for audit in audits.values() for bound in audit["bounds"]) <= 0.1 + 1e-9
    linked = audits["linkability"]
    assert linked["rates"][0]["hits"] >= 10  # of 20 that are copied, some have an age that others have
    assert linked["rates"][1]["hits"] <= 5
    risk = linked["details"]["risk"]
    assert risk["interval"][0] < risk["value"] < risk["interval"][1] <= 1
    assert "one party knows 'age' of each row, another 'income', 'job'" in linked["game"]


def test_people_see_the_risk(tables: dict[str, Path]) -> None:
    shown = table(tables, "--link", "age").stdout
    assert "risk in %" in shown
    assert "linkability" in shown


def test_a_limit_draws_from_both_sides_together(tables: dict[str, Path]) -> None:
    result = found(table(tables, "--limit", 50, "--json"))
    assert result["used"] == 50
    audits = by_name(result)
    assert audits["exact_match"]["trials"] == 160
    assert audits["singling_out"]["trials"] == 50
    assert found(table(tables, "--limit", 50, "--json")) == result


@pytest.mark.slow
def test_which_units_are_drawn_does_not_depend_on_their_side(tmp_path: Path) -> None:
    """Each third of 30 rows is the source once. Of 10 that are drawn, each is; by places it would be 10 = 3·c."""
    people = rows(30, 4)
    synthetic, drawn = write(tmp_path / "t.csv", HEADER, people), 0
    for begin in (0, 10, 20):
        source = write(tmp_path / "s.csv", HEADER, people[begin : begin + 10])
        holdout = write(tmp_path / "h.csv", HEADER, people[:begin] + people[begin + 10 :])
        files = ("--source", source, "--holdout", holdout)
        shown = audit("table", synthetic, *files, "--limit", 10, "--json")
        assert shown.returncode in (0, 4), "ten units show little, and nothing if one side has few of them"
        result = json.loads(shown.stdout)
        drawn += by_name(result)["closest_record"]["rates"][0]["trials"]
    assert drawn == 10


def test_tables_for_people_round_bounds_down_and_p_values_up(capsys: pytest.CaptureFixture[str]) -> None:
    bound = Bound(
        direction=Direction.LOWER,
        value=1.8497967,
        method="one_run",
        rigor=Rigor.FINITE_SAMPLE,
        adjacency=Adjacency.ADD_REMOVE,
        confidence=0.95,
    )
    audit = AuditResult(
        name="a",
        game="",
        attack="",
        statistics=(),
        conclusion="",
        trials=4,
        bounds=(bound,),
        rates=(Rate("hits", 1, 2, 0.95),) * 2,
        difference=Interval(0.0, 1.0),
        p_value=1.4101e-6,
        details={"risk": {"interval": [-0.5, 1.0]}},
    )
    settings = HoldoutSettings(source=Path("s.csv"), holdout=Path("h.csv"))
    units = Units.of(["one"], ["another"])
    print_audits(HoldoutAudit(synthetic=Path("t.csv"), settings=settings, unit="record", units=units, audits=(audit,)))
    cells = capsys.readouterr().out.split()
    assert {"1.84979", "1.42", "10⁻⁶"} <= set(cells)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--link", "age", "--link", "age"], "--link names column 'age' twice; name it once"),
        (
            ["--secret", "job", "--ignore", "job"],
            "--secret names column 'job', which is not compared: ignored, as stated",
        ),
        (["--link", "age", "--link", "income", "--link", "job"], "the second party of linkability knows no column"),
        (["--link", "aeg"], "aeg"),
    ],
)
def test_columns_that_parties_cannot_know(tables: dict[str, Path], arguments: list[str], message: str) -> None:
    result = table(tables, *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tables["synthetic"].parent / "private" / "table-audit.json").exists()


@pytest.mark.parametrize("kind", ["text", "table"])
def test_without_a_holdout_it_says_why_one_is_needed(kind: str, files: dict[str, Path]) -> None:
    result = command.run("audit", kind, files["seen"], "--source", files["seen"])
    assert result.returncode == 2
    assert result.stderr.startswith("dpassay: --holdout is missing: it names records")
    assert "what such records have in common" in result.stderr
    assert "`dpassay audit plan" in result.stderr


def test_columns_may_be_left_out(tables: dict[str, Path]) -> None:
    result = found(table(tables, "--ignore", "income", "--categorical", "age", "--json"))
    assert result["columns"] == {"numeric": [], "categorical": ["age", "job"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "nothing"], "there is no column 'nothing'"),
        (["--synthetic-text", "nothing"], "there is no column 'nothing'"),
        (["--words", "0"], "words must be at least 1"),
        (["--near-share", "1.5"], "near_share must be between 0 and 1"),
        (["--confidence", "1"], "confidence must be strictly between 0 and 1"),
        (["--delta", "1"], "delta must be below 1"),
        (["--holdout", "gone.jsonl"], "there is no such file"),
        (["--user", "note", "--holdout", "SEEN"], "60 users of column 'note' are in both"),
        (["--holdout", "SEEN"], "every record of one of them is in the other, too"),
        (["-o", "nowhere/x.json"], "name a file in an existing folder with -o"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    files: dict[str, Path], arguments: list[str], message: str
) -> None:
    result = text(files, *(str(files["seen"]) if word == "SEEN" else word for word in arguments))
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.startswith("dpassay: ")
    assert result.stderr.count("\n") == 1
    assert [file.name for file in (files["run"] / "private").iterdir()] == ["synthetic.jsonl"]


def test_coins_need_units_that_differ(files: dict[str, Path]) -> None:
    with files["seen"].open("a") as file:
        file.write(files["seen"].read_text().splitlines()[0] + "\n")
    result = text(files, "--coins")
    assert result.returncode == 2
    assert "1 records repeat the content of another, but --coins needs one coin for each unit" in result.stderr
    assert found(text(files, "--json"))["units"]["copies"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--secret", "salary"], "there is no column 'salary'; the columns are 'age', 'income', 'job'"),
        (["--ignore", "salary"], "there is no column 'salary'"),
        (["--limit", "1"], "limit must be at least 2"),
        (["--seed", "-1"], "seed must be at least 0"),
        (["--ignore", "age", "--ignore", "income", "--ignore", "job"], "no column that is not ignored"),
        (["--secret", "age", "--ignore", "income", "--ignore", "job"], "there is no other column"),
    ],
)
def test_a_mistake_with_tables(tables: dict[str, Path], arguments: list[str], message: str) -> None:
    result = table(tables, *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tables["synthetic"].parent / "private").exists()


def test_no_record_and_no_key(files: dict[str, Path]) -> None:
    empty = lines(files["run"].parent / "empty.jsonl", [])
    assert "holds no record" in text(files, "--holdout", empty).stderr
    assert (
        "holds no text"
        in audit("text", empty, "--source", files["seen"], "--holdout", files["unseen"], "--text", "note").stderr
    )
    (files["run"] / "private" / "personal-data-key.json").write_text("[]")
    result = text(files)
    assert result.returncode == 2
    assert "is not the key of an earlier audit" in result.stderr
