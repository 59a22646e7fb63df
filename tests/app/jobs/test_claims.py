"""`dpassay claims`: all rows come out as recorded, and the page is what it prints."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from command import run

from dpassay.claims.published import registry
from dpassay.claims.published.registry import check_claim, read_published_claims
from dpassay.claims.published.statement import CheckResult, Paper, name_of, verdict

DOCS = Path(__file__).resolve().parents[3] / "docs"
DEPENDS_ON_A_LIBRARY = "lib-dp-accounting-composed-gaussians"  # whose number is that of a Fourier transform's rounding


def sections(page: Path) -> dict[str, str]:
    """The sections of a page by their titles; the head is under the empty one."""
    head, *rest = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"": head, **dict(part.split("\n", 1) for part in rest)}


def test_every_row_is_as_recorded_and_the_pages_are_what_the_command_writes(tmp_path: Path) -> None:
    done = run("claims", "--markdown", str(tmp_path), "--quiet")
    assert (done.returncode, done.stdout) == (0, "")
    kept = sorted([DOCS / "published-claims.md", *(DOCS / "published").iterdir()])
    assert [path.relative_to(DOCS) for path in kept] == [path.relative_to(tmp_path) for path in written(tmp_path)]
    assert len(kept) == 1 + len({name_of(claim.source) for claim in read_published_claims()})
    for path in written(tmp_path):
        made, expected = sections(path), sections(DOCS / path.relative_to(tmp_path))
        assert made.keys() == expected.keys()
        for title, text in made.items():
            if title != DEPENDS_ON_A_LIBRARY:
                assert text.strip() == expected[title].strip(), title


def written(folder: Path) -> list[Path]:
    """The files of a folder and of those within it."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_registry_is_large_and_fair() -> None:
    """31 rows and more; sound statements are among them, and of libraries as well as of papers."""
    claims = read_published_claims()
    assert len(claims) >= 31
    assert {claim.recorded for claim in claims} == {"SUPPORTED", "REFUTED", "UNPROVEN"}
    kinds = Counter((isinstance(claim.source, Paper), claim.recorded) for claim in claims)
    assert min(kinds[paper, name] for paper in (True, False) for name in ("SUPPORTED", "REFUTED")) >= 5
    assert [claim.id for claim in claims].index("004-9") < [claim.id for claim in claims].index("004-10")


def test_one_row_is_explained(tmp_path: Path) -> None:
    done = run("claims", "000-4", "--explain")
    assert done.returncode == 0
    assert done.stdout.startswith("000-4: REFUTED\nStatement: ")
    assert re.search(r"^1\. .*^2\. ", done.stdout, re.MULTILINE | re.DOTALL)
    (result,) = json.loads(run("claims", "000-4", "--json").stdout)["claims"]
    assert {"id", "statement", "source", "verdict", "note", "published", "recomputed", "as_recorded"} <= result.keys()
    assert (result["verdict"], result["as_recorded"], result["published"]) == ("REFUTED", True, 0)
    assert result["recomputed"]["lower"] > 13.85


def test_workers_find_the_same() -> None:
    chosen = ("000-8", "000-4", "000-1")
    here, there = run("claims", *chosen, "--json"), run("claims", *chosen, "--json", "--workers", "2")
    assert there.stdout == here.stdout
    assert [item["id"] for item in json.loads(there.stdout)["claims"]] == list(chosen)


def test_a_row_that_comes_out_otherwise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    (claim,) = (item for item in read_published_claims() if item.id == "000-4")
    wrong = claim.model_copy(update={"recorded": "SUPPORTED"})
    monkeypatch.setattr("dpassay.claims.published.registry.read_published_claims", lambda: (wrong,))
    done = run("claims")
    assert done.returncode == 1
    assert "NOT as recorded: 000-4" in done.stdout
    assert "NOT AS RECORDED: the file says SUPPORTED" in run("claims", "--explain").stdout


def test_an_unknown_row_is_one_line() -> None:
    done = run("claims", "999-1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dpassay: there is no published claim '999-1'; ")
    assert done.stderr.endswith(f"`dpassay claims` lists all {len(registry.read_published_claims())}\n")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [(1.1, 2.0, "REFUTED"), (0.5, 1.0, "SUPPORTED"), (1.0, 1.5, "UNPROVEN"), (None, None, "UNPROVEN")],
)
def test_the_verdict_follows_from_the_numbers(lower: float | None, upper: float | None, expected: str) -> None:
    """A quantity that is claimed to be at most 1; one that may equal 1 is not refuted."""
    assert verdict(1.0, CheckResult(lower=lower, upper=upper, steps=())) == expected


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"check": "nowhere.nothing"}, "there is no file 'nowhere'"),
        ({"check": "private_inference.nothing"}, "has no check 'nothing'"),
    ],
)
def test_a_row_without_a_check_is_an_error(changes: dict[str, str], says: str) -> None:
    (claim,) = (item for item in read_published_claims() if item.id == "000-4")
    with pytest.raises(ValueError, match=says):
        check_claim(claim.model_copy(update=changes))


@pytest.mark.parametrize(("published", "claimed"), [(None, None), (2.0, 1.0)])
def test_a_number_is_either_printed_or_computed(
    monkeypatch: pytest.MonkeyPatch, published: float | None, claimed: float | None
) -> None:
    (claim,) = (item for item in read_published_claims() if item.id == "000-4")
    given = claim.model_copy(update={"published": published})
    monkeypatch.setattr(registry, "_check_of", lambda of: lambda **values: CheckResult(claimed=claimed, steps=()))
    with pytest.raises(ValueError, match="either the file states the published number"):
        check_claim(given)
