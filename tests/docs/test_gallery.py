"""The gallery shows what its results say, and every script of a generator understands the options that it is given."""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dpassay.attacks.black_box.worst_cases import STRATEGIES

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "examples" / "generators"
FOLDERS = [str(ROOT / "docs" / "gallery"), str(SCRIPTS), str(ROOT / "docs" / "reproductions")]
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "make_people")


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    """The module of the page's tables. It imports others by their bare names, which are forgotten after."""
    known, path = set(sys.modules), list(sys.path)
    sys.path[:0] = FOLDERS[:2]
    yield importlib.import_module("fill_page")
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(tuple(FOLDERS)):
            del sys.modules[name]


def test_every_table_is_that_of_the_results(page: ModuleType) -> None:
    texts, made = [path.read_text(encoding="utf-8") for path in page.PAGES], page.page_tables()
    shown = [line.split()[2] for text in texts for line in text.splitlines() if line.startswith("<!-- table ")]
    assert sorted(made) == sorted(shown)
    for text in texts:
        assert page.tables.filled(text, made) == text


def test_results_are_those_of_the_entries(page: ModuleType) -> None:
    """An entry that is changed must be audited again."""
    files = {path.stem for path in page.RESULTS.glob("*.json")}
    assert files == {entry.name for entry in page.ENTRIES}
    for entry, result in page.results():
        stated = (entry.name, entry.delta, entry.adjacency, entry.runs)
        assert stated == tuple(result[key] for key in ("entry", "delta", "adjacency", "planned_runs"))
        assert result["runs"] <= entry.runs
        assert set(result["tried"]) & set(STRATEGIES)
        assert result["versions"][entry.package] if entry.package else result["versions"]["dpassay"]


def test_what_is_refuted_says_where_its_code_does_it(page: ModuleType) -> None:
    for entry, result in page.results():
        if result["refuted"]:
            assert entry.reading, f"{entry.name}: read its code before the page names a cause"


def test_a_refutation_is_what_its_bound_says(page: ModuleType) -> None:
    for _, result in page.results():
        assert bool(result["refuted"]) == (result["lower"] > result["epsilon"])


def test_every_script_understands_the_options_of_its_entries(page: ModuleType) -> None:
    assert {entry.script for entry in page.ENTRIES} == set(NAMES)
    for entry in page.ENTRIES:
        parser = importlib.import_module(entry.script).parser()
        for options in filter(None, (entry.options, entry.unprotected)):
            parser.parse_args(["in.csv", "out.csv", *options.format(seed=7).split()])


@pytest.mark.parametrize("name", NAMES)
def test_a_script_says_what_is_wrong_without_its_package(name: str) -> None:
    """In Python's own words, before anything is imported or written."""
    script = str(SCRIPTS / f"{name}.py")
    done = subprocess.run(
        [sys.executable, "-S", script, "in.csv", "out.csv", "--nonsense"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--nonsense" in done.stderr or "required" in done.stderr
    shown = subprocess.run([sys.executable, "-S", script, "--help"], capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Install:" in shown.stdout


def test_a_script_is_run_as_a_function(page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records arrive in a file and rows come back; a run notes the time that it took, also where it fails."""
    functions = importlib.import_module("as_functions")
    entry = page.ENTRIES[0]
    (tmp_path / "gallery_stub.py").write_text(
        "import sys\n"
        "def main(words):\n"
        "    given, made, seed = words\n"
        "    if seed == '13':\n"
        "        raise SystemExit(1)\n"
        "    text = open(given).read()\n"
        "    open(made, 'w').write(text + '9,seed ' + seed + '\\n')\n"
        "if __name__ == '__main__':\n"
        "    main(sys.argv[1:])\n"
    )
    monkeypatch.setattr(functions, "SCRIPTS", tmp_path)
    monkeypatch.setitem(
        functions.BY_NAME, "stub", type(entry)(**{**vars(entry), "script": "gallery_stub", "options": "{seed}"})
    )
    monkeypatch.setenv(functions.CPU_FILE, str(tmp_path / "cpu.txt"))
    records = [{"visits": "0", "health": 'a, "b"'}, {"visits": "1", "health": ""}]
    assert functions.stub(records, 2**32 + 5) == [*records, {"visits": "9", "health": "seed 5"}]
    with pytest.raises(SystemExit):
        functions.stub(records, 13)
    monkeypatch.setenv(functions.PYTHON, sys.executable)
    assert functions.stub(records, 6) == [*records, {"visits": "9", "health": "seed 6"}], "a process of its own"
    with pytest.raises(subprocess.CalledProcessError):
        functions.stub(records, 13)
    assert len((tmp_path / "cpu.txt").read_text().split()) == 4
    with pytest.raises(AttributeError):
        functions.smote_unprotected  # noqa: B018 (it has no protection to switch off)
    with pytest.raises(AttributeError):
        functions.nothing  # noqa: B018


def test_versions_are_those_of_the_interpreter_of_the_generator(page: ModuleType) -> None:
    study, entry = importlib.import_module("study"), next(entry for entry in page.ENTRIES if not entry.package)
    own, other = (study.interpreter(python) for python in ("", sys.executable))
    assert own[0] == other[0]
    assert study.versions(entry, own[1]) == study.versions(entry, other[1])
    with pytest.raises(SystemExit, match="dpassay is not installed"):
        study.versions(entry, [str(page.RESULTS)])


def test_public_values_are_given_as_they_are_read(page: ModuleType, tmp_path: Path) -> None:
    """DataSynthesizer reads a column of whole numbers as numbers, and looks them up in the domain that it is given."""
    given = importlib.import_module("data_synthesizer").public_columns(str(SCRIPTS / "people-binned.yaml"), tmp_path)
    domains = json.loads(Path(given["categorical_attribute_domain_file"]).read_text(encoding="utf-8"))
    with (SCRIPTS / "people-binned.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert set(domains) == set(rows[0])
    for name, values in domains.items():
        assert {row[name] for row in rows} <= set(map(str, values))
        whole = all(row[name].isdigit() for row in rows)
        assert given["attribute_to_datatype"][name] == ("Integer" if whole else "String")
        assert all(isinstance(value, int) == whole for value in values)


@pytest.mark.parametrize("name", ["evolution", "marginals"])
def test_own_claims_are_met_by_their_plans(name: str) -> None:
    import yaml

    from dpassay.accounting import account
    from dpassay.generators.registry import make_claim

    content = yaml.safe_load((SCRIPTS / f"people-{name}.yaml").read_text(encoding="utf-8"))
    content["data"]["path"] = str(SCRIPTS / content["data"]["path"])
    content["public"]["columns"] = str(SCRIPTS / content["public"]["columns"])
    claim = make_claim(content)
    bound = account(
        claim.plan().event, method="lattice", adjacency=claim.adjacency, delta=content["guarantee"]["delta"]
    )
    assert bound.value <= content["guarantee"]["epsilon"]
