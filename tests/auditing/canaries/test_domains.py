"""Canaries that belong to the domain, one run for all audits, and claims in words."""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import command
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import yaml
from audit_command import done, dpassay, refused
from scipy import stats
from seeded_entropy import seed_entropy

from dpassay.auditing.canaries.design import each_confidence
from dpassay.auditing.canaries.files import read_plan
from dpassay.auditing.canaries.holdout import CanaryCoins
from dpassay.data.records import read_rows

PLANS = ("basic", "family", "student")
SCHEMA = {
    "columns": [
        {"name": "age", "type": "number", "low": 0, "high": 120},
        {"name": "grade", "type": "category", "values": ["1", "2", "3", "9"]},
        {"name": "plan", "type": "category", "values": [*PLANS, "business"], "missing": True},
        {"name": "spent", "type": "number", "low": 0, "high": 999, "decimals": 2},
        {"name": "since", "type": "date", "low": "2020-01-01", "high": "2024-12-31"},
    ]
}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [dict(row) for _, row in read_rows(path)]


def written(rows: list[dict[str, Any]], path: Path) -> Path:
    """Rows as a file of the format of its name."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            out = csv.DictWriter(file, list(rows[0]))
            out.writeheader()
            out.writerows(rows)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    return path


@pytest.fixture
def people() -> list[dict[str, Any]]:
    draw = random.Random(0)
    return [
        {
            "id": number,
            "age": draw.randint(18, 90),
            "grade": draw.choice([1, 2, 3]),
            "plan": draw.choice([*PLANS, None]),
            "spent": round(draw.uniform(0, 500), 2),
            "since": datetime.date(2021, 1, 1) + datetime.timedelta(draw.randrange(900)),
        }
        for number in range(500)
    ]


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.yaml"
    path.write_text(yaml.safe_dump(SCHEMA))
    return path


@pytest.mark.grid
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("public", [True, False])
def test_planting_keeps_types_and_numbers_of_distinct_values(
    ending: str, public: bool, people: list[dict[str, Any]], schema: Path, tmp_path: Path
) -> None:
    like, folder = written(people, tmp_path / f"like.{ending}"), tmp_path / "audit"
    options = ("--schema", schema) if public else ()
    done("plan", "--kind", "table", "--canaries", 200, "--like", like, "--id", "id", *options, "-o", folder)
    before, planted = rows_of(like), rows_of(folder / f"canaries.{ending}")
    for name in ("grade", "plan"):
        assert {row[name] for row in planted} == {row[name] for row in before}
    for name in before[0]:
        assert {type(row[name]) for row in planted} <= {type(row[name]) for row in before}
    assert all(0 <= float(row["spent"]) <= (999 if public else 500) for row in planted)
    assert any(float(row["spent"]) > 500 for row in planted) == public
    assert all(0 <= int(row["age"]) <= 120 for row in planted)
    days = [str(row["since"]) for row in planted]
    first, last = ("2020-01-01", "2024-12-31") if public else ("2021-01-01", "2023-06-20")
    assert all(first <= day <= last for day in days)
    assert not {row["id"] for row in planted} & {row["id"] for row in before}
    assert "made-up word" not in (folder / "README.md").read_text()


def test_a_schema_without_data_reads_nothing_private(schema: Path, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    about = done("plan", "--kind", "table", "--canaries", 100, "--schema", schema, "-o", folder)
    assert about["reads_data"] is None
    rows = rows_of(folder / "canaries.jsonl")
    assert {row["plan"] for row in rows} <= {*PLANS, "business", None}
    assert all(isinstance(row["age"], int) and isinstance(row["spent"], float) for row in rows)
    assert "name their file with --like" in refused(
        "plan", "--kind", "table", "--score", "pairs", "--schema", schema, "-o", tmp_path / "b"
    )


def test_columns_that_schema_and_data_do_not_share(people: list[dict[str, Any]], schema: Path, tmp_path: Path) -> None:
    like = written(people, tmp_path / "like.csv")
    plan = ("plan", "--kind", "table", "--like", like, "--schema", schema, "-o", tmp_path / "audit")
    assert "has a column 'id', which the schema lacks" in refused(*plan)
    for row in people:
        del row["plan"]
    written(people, like)
    assert "there is no column 'plan', which the schema has" in refused(*plan, "--id", "id")


@pytest.mark.parametrize("public", [True, False])
def test_edges_are_inside_a_public_range_and_beyond_one_of_the_data(
    public: bool, people: list[dict[str, Any]], schema: Path, tmp_path: Path
) -> None:
    like, folder = written(people, tmp_path / "like.jsonl"), tmp_path / "audit"
    options = ("--schema", schema) if public else ()
    done("plan", "--kind", "edge", "--canaries", 100, "--like", like, "--id", "id", *options, "-o", folder)
    spent = np.array([row["spent"] for row in rows_of(folder / "canaries.jsonl")])
    low, high = (0.0, 999.0) if public else (min(row["spent"] for row in people), max(row["spent"] for row in people))
    width = high - low
    if public:
        assert ((spent <= low + 0.02 * width) | (spent >= high - 0.02 * width)).all()
        assert ((low <= spent) & (spent <= high)).all()
    else:
        assert ((spent <= low) | (spent >= high)).all()
        assert ((spent >= 0) & (spent <= high + 0.5 * width + 0.01)).all()


def test_new_categories_are_found_exactly(people: list[dict[str, Any]], schema: Path, tmp_path: Path) -> None:
    like, folder = written(people, tmp_path / "like.jsonl"), tmp_path / "audit"
    done("plan", "--kind", "category", "--canaries", 80, "--like", like, "--id", "id", "--schema", schema, "-o", folder)
    manifest = read_plan(folder).plan
    every = [*manifest.candidates, *manifest.never]
    assert len({(canary.column, canary.value) for canary in every}) == 160
    assert {canary.column for canary in every} == {"grade", "plan"}
    for canary in every:
        assert canary.row is not None
        assert (canary.column == "grade") == isinstance(canary.row[canary.column], int)
        assert canary.value not in ("1", "2", "3", "9", *PLANS, "business")
    held = [{"grade": canary.row["grade"], "plan": canary.row["plan"]} for canary in manifest.planted[:9] if canary.row]
    done("score", folder, written([*held, *({"grade": 1, "plan": "basic"} for _ in range(5))], tmp_path / "s.jsonl"))
    audit = done("bound", folder)["audit"]
    assert (audit["rates"][0]["hits"], audit["rates"][0]["trials"]) == (9, len(manifest.planted))
    assert audit["rates"][1]["hits"] == 0


def test_keys_look_like_the_numbers_in_the_data(tmp_path: Path) -> None:
    texts = [{"text": f"Invoice 2023-{number:05d} is open, call 0171-{5550000 + number}."} for number in range(60)]
    like, folder = written(texts, tmp_path / "like.jsonl"), tmp_path / "audit"
    own = ("--template", "Please pay {key}.", "--template", "It is {key}, again")
    done("plan", "--like", like, "--canaries", 60, *own, "-o", folder)
    manifest = read_plan(folder).plan
    every = [*manifest.candidates, *manifest.never]
    forms = Counter("".join("#" if item.isdigit() else item for item in canary.key) for canary in every)
    assert set(forms) == {"####-#####", "####-#######"}
    assert {canary.text.replace(canary.key, "{key}") for canary in every} == {"Please pay {key}.", "It is {key}, again"}
    said = [{"text": f"so {canary.key}!"} for canary in manifest.planted[:7]]
    done("score", folder, written(said, tmp_path / "s.jsonl"))
    assert done("bound", folder)["audit"]["rates"][0]["hits"] == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--template", "no place"), "template must have {key} once"),
        (("--kind", "echo", "--template", "{key}"), "have no templates; leave --template out"),
        (("--score", "pairs"), "are scored in one way; leave --score out"),
        (("--kind", "table", "--like", "x.csv", "--score", "far"), "score must be one of"),
        (("--holdout", 0.5), "--holdout splits the records of a file; name it with --like"),
        (("--holdout", 0.6, "--like", "x.jsonl"), "a share in (0, 0.5]"),
        (("--holdout", 0.5, "--like", "x.jsonl", "--unit", "group(2)"), "use --unit record or user"),
        (("--unit", "group(10)", "--epsilon", 10), "no number of canaries can refute ε = 10"),
        (("--unit", "group(10)", "--epsilon", 10), "not even 100000 of them of 10 records each"),
        (("--epsilon", 1, "--delta", 0.5), "no number of canaries can refute ε = 1 at δ = 0.5"),
        (("--schema", "none.yaml"), "none.yaml: cannot be read"),
        (("--separator", "tab"), "how a file is written was stated, but no file of the data; name it with --like"),
        (("--missing", "none"), "how a file is written was stated, but no file of the data; name it with --like"),
    ],
)
def test_plans_that_cannot_be(arguments: tuple[object, ...], message: str, tmp_path: Path) -> None:
    assert message in refused("plan", *arguments, "-o", tmp_path / "audit")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_claim_of_a_group_is_said_before_anything_is_planned(tmp_path: Path) -> None:
    result = dpassay("plan", "--unit", "group(10)", "--epsilon", 1, "-o", tmp_path / "a")
    assert result.stdout.splitlines()[:2] == [
        "The claim that is tested: ε = 1 for adding or removing a group of 10 records together.",
        "A claim of ε = 1 per record is ε = 10 for such a group; to test it, give --epsilon 10.",
    ]
    assert "per record is ε = 10 for such a group" in (tmp_path / "a" / "README.md").read_text()
    about = done("plan", "--unit", "group(2)", "--epsilon", 1, "--delta", 1e-6, "-o", tmp_path / "b")
    # δ Σ e^{iε} over i = 0, 1: 1e-6 (1 + e).
    assert "ε = 2 at δ = 3.71829 × 10⁻⁶ for such a group" in about["claim_in_words"][1]
    about = done("plan", "--unit", "group(40)", "--epsilon", 1, "--delta", 1e-6, "-o", tmp_path / "c")
    assert "says nothing about such a group" in about["claim_in_words"][1]


@pytest.mark.grid
@pytest.mark.parametrize(("epsilon", "canaries"), [(1, 1000), (6, 8000)])
def test_as_many_canaries_as_the_claim_needs(epsilon: float, canaries: int, tmp_path: Path) -> None:
    """1211 right guesses show ε = 6, and a quarter of 8000 is the first quarter of a doubled 1000 that is more."""
    assert done("plan", "--epsilon", epsilon, "-o", tmp_path / "a")["candidates"] == canaries


@pytest.mark.grid
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_one_run_serves_all_audits_of_a_table(ending: str, people: list[dict[str, Any]], tmp_path: Path) -> None:
    for row in people:  # `dpassay audit table` compares numbers and text
        row["since"] = str(row["since"])
    people += [{**people[0], "id": 900}, {**people[1], "id": 901}]  # two records that repeat two others
    like, folder = written(people, tmp_path / f"like.{ending}"), tmp_path / "audit"
    plan = ("--kind", "table", "--canaries", 120, "--like", like, "--id", "id", "--epsilon", 1, "--holdout", 0.5)
    result = dpassay("plan", *plan, "-o", folder)
    assert "4 of 502 records repeat the content of another" in result.stdout
    lines = [line.strip() for line in result.stdout.splitlines() if line.startswith("  dpassay audit")]
    before = {str(row["id"]): row for row in rows_of(like)}
    sides = {name: rows_of(folder / "private" / f"{name}.{ending}") for name in ("source", "holdout")}
    planted, everything = rows_of(folder / f"canaries.{ending}"), rows_of(folder / f"input.{ending}")
    names = {side: {str(row["id"]) for row in rows} for side, rows in sides.items()}
    repeated = {"0", "1", "900", "901"}
    assert names["source"] | names["holdout"] == set(before) - repeated
    assert not names["source"] & names["holdout"]
    assert {str(row["id"]) for row in everything} == names["source"] | repeated | {str(row["id"]) for row in planted}
    assert len(everything) == len(names["source"]) + 4 + len(planted)
    assert all(before[str(row["id"])] == row for rows in sides.values() for row in rows)
    assert [row["id"] for row in everything] != sorted(row["id"] for row in everything)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert (folder / f"input.{ending}").stat().st_mode & 0o777 == 0o600
    # The generator copies its input: every audit finds that.
    assert "is what the generator reads" in refused("score", folder, folder / f"input.{ending}")
    synthetic = written(everything[::-1], tmp_path / f"synthetic.{ending}")
    codes = [command.run(*line.replace("SYNTHETIC", str(synthetic)).split()[1:]).returncode for line in lines]
    assert [line.split()[2] for line in lines] == ["score", "bound", "table"]
    assert codes == [0, 1, 1]
    [audit] = json.loads((tmp_path / "private" / "table-audit.json").read_text())["audits"][:1]
    assert (audit["rates"][0]["hits"], audit["rates"][1]["hits"]) == (len(names["source"]), 0)
    assert all("0.975" in line for line in lines[2:])
    assert read_plan(folder).plan.confidence == 0.975


def test_one_run_serves_all_audits_of_text(tmp_path: Path) -> None:
    texts = [
        {"no": i, "note": f"note {i} of {i * 7919 % 1000} about {i * 31 % 97} and {i * 17 % 89} more"}
        for i in range(300)
    ]
    like, folder = written(texts, tmp_path / "like.jsonl"), tmp_path / "audit"
    plan = ("--canaries", 60, "--like", like, "--text", "note", "--id", "no", "--epsilon", 1, "--holdout", 0.3)
    result = dpassay("plan", *plan, "-o", folder)
    lines = [line.strip() for line in result.stdout.splitlines() if line.startswith("  dpassay audit")]
    assert [line.split()[2] for line in lines] == ["score", "bound", "text", "membership"]
    assert "--text note --synthetic-text note" in lines[2]
    candidates = rows_of(folder / "private" / "candidates.jsonl")
    assert {row["note"] for row in candidates if row["included"]} == {
        row["note"] for row in rows_of(folder / "private" / "source.jsonl")
    }
    # 0.6 of 300 take part, 180 ± 5 standard deviations of 8.5: outside with probability below 1e-6.
    assert 138 <= len(candidates) <= 222
    synthetic = written(rows_of(folder / "input.jsonl")[::-1], tmp_path / "synthetic.jsonl")
    for line in lines:
        line = line.replace("SYNTHETIC", str(synthetic))
        if "score" in line.split() and "--text" not in line:
            line += " --text note"
        result = command.run(*line.split()[1:])
        assert result.returncode in (0, 1), result.stderr


@pytest.mark.grid
@pytest.mark.parametrize("scorings", [1, 2, 5])
@pytest.mark.parametrize("case", ["rows", "texts", "users"])
def test_the_errors_of_all_commands_and_files_add_up_to_no_more_than_was_given(
    case: str, scorings: int, people: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Union bound over the commands as they are printed, in exact decimals; little is lost by rounding."""
    if case == "rows":
        data = [row | {"since": str(row["since"])} for row in people]
        kind: tuple[object, ...] = ("--kind", "table", "--like", written(data, tmp_path / "like.csv"), "--id", "id")
    else:
        data = [{"who": f"user {i % 80}", "text": f"text {i} and {i * i}"} for i in range(300)]
        kind = ("--like", written(data, tmp_path / "like.jsonl"), "--user", "who")
        kind = (*kind, "--unit", "user") if case == "users" else kind
    folder = tmp_path / "audit"
    plan = ("plan", *kind, "--canaries", 40, "--epsilon", 1, "--holdout", 0.5, "--scorings", scorings, "-o", folder)
    printed = dpassay(*plan).stdout
    manifest, readme = read_plan(folder).plan, (folder / "README.md").read_text()
    lines = [line.split() for line in printed.splitlines() if line.startswith("  dpassay audit")]
    assert len(lines) == {"rows": 3, "texts": 4, "users": 3}[case]
    errors = [1 - Decimal(repr(manifest.confidence))]  # of all files
    for line in lines[2:]:
        errors.append(scorings * (1 - Decimal(line[line.index("--confidence") + 1])))
        assert f"--confidence {line[line.index('--confidence') + 1]}" in readme
    assert Decimal("0.0499") < sum(errors) <= Decimal("0.05")
    assert manifest.design.each == pytest.approx(1 - float(errors[0]) / scorings, abs=1e-12)
    assert "hold jointly with 0.95:" in printed
    for text in (printed, readme):
        assert (f"compares source and holdout for each of the {scorings} files" in text) == (scorings > 1)
    assert (f"SYNTHETIC is what it writes, each of {scorings} files" in printed) == (scorings > 1)


@pytest.mark.grid("total", "parts")
@pytest.mark.parametrize("total", [0.5, 0.9, 0.95, 0.99, 0.999999, 0.9999999, 1 - 1e-12])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 15, 300])
def test_a_confidence_is_divided_upwards(total: float, parts: int) -> None:
    each = each_confidence(total, parts)
    assert 1 - Decimal(repr(total)) >= parts * (1 - Decimal(repr(each)))
    assert each < 1
    assert len(repr(each)) <= 8 or each > 1 - 1e-6


def test_a_confidence_too_near_1_is_not_divided(tmp_path: Path) -> None:
    like = written([{"text": f"text {i}"} for i in range(40)], tmp_path / "like.jsonl")
    plan = ("plan", "--like", like, "--canaries", 10, "--confidence", 1 - 2**-53, "-o", tmp_path / "audit")
    assert "is too near 1 to be divided among 3 results" in refused(*plan, "--holdout", 0.5)


def test_all_records_of_a_user_have_one_coin(tmp_path: Path) -> None:
    rows = [{"who": f"user {i % 80}", "text": f"text {i} and {i * i}"} for i in range(400)]
    like, folder = written(rows, tmp_path / "like.csv"), tmp_path / "audit"
    plan = ("--canaries", 40, "--like", like, "--user", "who", "--unit", "user", "--copies", 2, "--holdout", 0.5)
    result = dpassay("plan", *plan, "-o", folder)
    sides = [{row["who"] for row in rows_of(folder / "private" / f"{name}.csv")} for name in ("source", "holdout")]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 80
    assert "--user who --coins" in result.stdout
    assert "membership" not in result.stdout


def test_all_rows_of_a_user_have_one_coin(people: list[dict[str, Any]], tmp_path: Path) -> None:
    """Of a table, too; and the command that is printed takes users as units, and finds a copy of the input."""
    rows = [{**row, "id": number // 4} for number, row in enumerate(people)]
    like, folder = written(rows, tmp_path / "like.csv"), tmp_path / "audit"
    users = ("--user", "id", "--unit", "user", "--copies", 2)
    kind = ("--kind", "table", "--canaries", 60, "--like", like, "--epsilon", 0.5, "--holdout", 0.5)
    result = dpassay("plan", *kind, *users, "-o", folder)
    sides = [{row["id"] for row in rows_of(folder / "private" / f"{name}.csv")} for name in ("source", "holdout")]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == len({row["id"] for row in rows})
    (line,) = (line.strip() for line in result.stdout.splitlines() if line.startswith("  dpassay audit table"))
    assert "--user id --coins" in line
    synthetic = written(rows_of(folder / "input.csv")[::-1], tmp_path / "synthetic.csv")
    assert command.run(*line.replace("SYNTHETIC", str(synthetic)).split()[1:]).returncode == 1
    document = json.loads((tmp_path / "private" / "table-audit.json").read_text())
    assert document["unit"] == "user"
    assert [rate["hits"] for rate in document["audits"][0]["rates"]] == [len(sides[0]), 0]


def test_users_of_a_table_are_those_of_its_audit(people: list[dict[str, Any]], tmp_path: Path) -> None:
    """Case and spaces at the ends do not matter to `dpassay audit table`, so they do not to coins."""
    for number, row in enumerate(people):
        row["id"] = (f"user {number // 4}", f"User {number // 4} ", f"USER {number // 4}")[number % 3]
        row["since"] = str(row["since"])
    like, folder = written(people, tmp_path / "like.csv"), tmp_path / "audit"
    users = ("--user", "id", "--unit", "user", "--holdout", 0.5)
    done("plan", "--kind", "table", "--canaries", 40, "--like", like, *users, "-o", folder)
    sides = [
        {row["id"].strip().casefold() for row in rows_of(folder / "private" / f"{name}.csv")}
        for name in ("source", "holdout")
    ]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 125


def test_coins_of_units_are_fair_and_independent_of_each_other() -> None:
    """20000 coins; each count is outside its interval with probability below 1e-6."""
    coin = CanaryCoins(0.25)
    sides = [coin.side(unit) for unit in range(20_000)]
    assert sides == [coin.side(unit) for unit in range(20_000)]
    for side in (0, 1):
        low, high = stats.binom.ppf(np.array([5e-7, 1 - 5e-7]), 20_000, 0.25)
        assert low <= sides.count(side) <= high
    pairs = Counter(zip(sides[::2], sides[1::2], strict=True))
    low, high = stats.binom.ppf(np.array([5e-7, 1 - 5e-7]), 10_000, 1 / 16)
    assert low <= pairs[0, 1] <= high


def test_records_without_a_text_and_sides_without_records(tmp_path: Path) -> None:
    like = written([{"text": "one 12345"}, {"text": ""}], tmp_path / "like.jsonl")
    plan = ("plan", "--canaries", 10, "--like", like, "--holdout", 0.5, "-o", tmp_path / "audit")
    assert "line 2: column 'text' has no text; --holdout needs one in each record" in refused(*plan)
    written([{"text": "one"}, {"text": "One "}], like)
    assert "0 records are in the source and 0 in the holdout, but both need some" in refused(*plan)
    assert [path.name for path in tmp_path.iterdir()] == ["like.jsonl"]


def test_a_plan_of_version_0_2_is_read(people: list[dict[str, Any]], tmp_path: Path) -> None:
    """Its manifests have no score, no layout, and canaries without value, column and expected counts."""
    like = written(people, tmp_path / "like.csv")
    for kind in ("key", "table"):
        folder = tmp_path / kind
        more = ("--like", like, "--id", "id") if kind == "table" else ()
        done("plan", "--kind", kind, "--canaries", 30, *more, "-o", folder)
        path, about = folder / "private" / "manifest.json", folder / "plan.json"
        old = json.loads(path.read_text())
        for name in ("score", "layout", "reading", "written", "understood"):
            del old[name]
        for column in old["columns"]:
            for name in ("missing", "form", "marks", "spelling", "compared"):
                del column[name]
        for canary in (*old["candidates"], *old["never"]):
            key = canary["value"]
            for name in ("value", "column", "expected"):
                del canary[name]
            if kind == "key":
                canary.update(text=f"My 5-digit key is {key}", start=len("My 5-digit key is "))
        path.write_text(json.dumps(old))
        plan = json.loads(about.read_text())
        about.write_text(json.dumps(plan | {"manifest_sha256": hashlib.sha256(path.read_bytes()).hexdigest()}))
        planted = read_plan(folder).plan.planted
        rows = [dict(canary.row) if canary.row else {"text": canary.text} for canary in planted]
        done("score", folder, written([*rows, rows[0]], tmp_path / f"s-{kind}.jsonl"))
        result = done("bound", folder, codes=(1, 0, 4))  # three guesses of rows show nothing half of the time
        assert result["audit"]["rates"][0]["hits"] > 0


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["key", "echo"])
def test_a_model_is_scored_in_place_of_a_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a model that makes planted canaries twenty nats likelier: every guess is right; seeded."""
    from dpassay.attacks.canaries import likelihood
    from dpassay.mechanisms.models import model_folder
    from dpassay.mechanisms.models.language_model import LanguageModel

    seed_entropy(monkeypatch, 0)
    folder = tmp_path / "audit"
    done("plan", "--kind", kind, "--canaries", 60, "--epsilon", 1, "-o", folder)
    planted = {canary.text for canary in read_plan(folder).plan.planted}

    def likely(model: Any, canaries: Any, base: Any) -> Any:
        return np.array([-30.0 + 20 * (canary.text in planted) + len(canary.text) % 3 for canary in canaries])

    def load(place: Path | str, *_: object, **__: object) -> Any:
        return SimpleNamespace(
            name="model", fingerprint=model_folder.fingerprint(model_folder.locate(str(place), False))
        )

    monkeypatch.setattr(LanguageModel, "load", load)
    monkeypatch.setattr(likelihood, "ending_log_probabilities", likely)
    done("score", folder, "--model", "builtin", "--base", "builtin")
    result = done("bound", folder)
    assert result["refuted"] is True
    assert result["synthetic"][0]["checked"] is True
    assert "under the model" in result["audit"]["attack"]
    assert result["audit"]["rates"][1]["hits"] == 0
    assert not any("positive" in rate["name"] for rate in result["audit"]["controls"])
    done("report", folder)


def test_a_file_or_a_model_is_scored(schema: Path, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    done("plan", "--kind", "table", "--canaries", 20, "--schema", schema, "-o", folder)
    assert "name the generator's file, or its model with --model" in refused("score", folder)
    assert "--base belongs to --model" in refused("score", folder, schema, "--base", "builtin")
    assert "are rows, which a language model does not score" in refused("score", folder, "--model", "builtin")
