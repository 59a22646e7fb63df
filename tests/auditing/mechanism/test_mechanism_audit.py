"""Functions of a little library: what holds is not refuted, each fault is found and named, each mistake is one line."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import little_library
import pytest
import yaml
from command import run

from dpassay import audit
from dpassay.auditing.mechanism.run import LIMITS
from dpassay.audits.games.replay.record_replay import FALSE_ALARM
from dpassay.base.errors import InputError

LAPLACE = {"draw": "little_library:Laplace.randomise", "query": "value", "law": "laplace"}
GEOMETRIC = {**LAPLACE, "draw": "little_library:Geometric.randomise", "law": "discrete_laplace"}
MEAN: dict[str, Any] = {
    "name": "mean",
    "library": "numpy",
    "call": "little_library:mean",
    "arguments": {"epsilon": 1.0},
    "adjacency": "replace_one",
    "data": [0.0, 0.0, 0.5, 1.0],
    "neighbors": [[1.0, 0.0, 0.5, 1.0]],
    "noise": [{**LAPLACE, "scale": 0.25, "sensitivity": 0.25}],
}
COUNTS: dict[str, Any] = {
    **MEAN,
    "name": "counts",
    "call": "little_library:counts",
    "adjacency": "add_remove",
    "data": [0, 1, 1],
    "neighbors": [[0, 1, 1, 2], [0, 1]],
    "noise": [{**GEOMETRIC, "scale": 1.0, "sensitivity": 1.0}],
}
SUMS: dict[str, Any] = {
    **MEAN,
    "name": "sums",
    "call": "little_library:sums",
    "arguments": {"scale": 2.0},
    "adjacency": "add_remove",
    "data": [[0.0, 1.0], [1.0, 0.0]],
    "neighbors": [[[0.0, 1.0]]],
    "noise": [
        {"draw": "little_library:secure_normal", "query": "output", "law": "gaussian", "scale": 2.0, "sensitivity": 1.0}
    ],
}


MARGINALS: dict[str, Any] = {
    **MEAN,
    "name": "marginals",
    "call": "little_library:Marginals.fit",
    "object": {"scale": 2.0},
    "arguments": {},
    "adjacency": "add_remove",
    "data": [[0, 1], [1, 0], [0, 2]],
    "neighbors": [[[0, 1], [1, 0]], [[0, 1], [1, 0], [0, 2], [2, 2]]],
    "noise": [
        {
            "draw": "little_library:noise_of",
            "query": "little_library:Table.counts",
            "law": "gaussian",
            "scale_argument": "scale",
            "sensitivity": math.sqrt(1 / 2**2 + 1 / 4**2),  # one count of each column moves by 1
        }
    ],
}


def written(folder: Path, body: dict[str, Any]) -> Path:
    path = folder / "manifest.yaml"
    path.write_text(yaml.safe_dump(body))
    return path


def audited(folder: Path, body: dict[str, Any], runs: int = 1000) -> Any:
    return audit.mechanism(written(folder, body), runs=runs)


def changed(body: dict[str, Any], **noise: Any) -> dict[str, Any]:
    return {**body, "noise": [{**body["noise"][0], **noise}]}


@pytest.mark.parametrize("body", [MEAN, COUNTS, SUMS, MARGINALS], ids=lambda body: body["name"])
def test_what_holds_is_not_refuted(tmp_path: Path, body: dict[str, Any]) -> None:
    """The noise is new in every run of this suite; each of these fails with probability at most 1e-6."""
    before = little_library.Laplace.randomise
    result = audited(tmp_path, body)
    assert not result.refuted
    assert result.in_words()[1].startswith("Nothing that the manifest declares was contradicted.")
    assert little_library.Laplace.randomise is before  # nothing stays patched
    assert FALSE_ALARM == 1e-6


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (changed(MEAN, sensitivity=0.125), "declared sensitivity is exceeded on this pair: declared 0.125, found 0.25"),
        (changed(COUNTS, sensitivity=0.5), "declared sensitivity is exceeded on this pair: declared 0.5, found 1"),
        (changed(SUMS, sensitivity=0.5), "declared sensitivity is exceeded on this pair: declared 0.5, found 1"),
        (
            {**MEAN, "call": "little_library:mean_without_a_clip", "neighbors": [[2.0, 0.0, 0.5, 1.0]]},
            "declared sensitivity is exceeded on this pair: declared 0.25, found 0.5",
        ),
        (
            changed(MARGINALS, sensitivity=0.5),
            "declared sensitivity is exceeded on this pair: declared 0.5, found 0.559",
        ),
        (
            {**MARGINALS, "object": {"scale": 2.0, "of_rows": True}},
            "declared sensitivity is exceeded on this pair: declared 0.559",
        ),
        (
            changed({**MARGINALS, "object": {"scale": 2.0, "half": True}}, draw="little_library:half_noise_of"),
            "noise does not have the declared law and scale",
        ),
        ({**MEAN, "call": "little_library:half_noise"}, "noise does not have the declared law and scale"),
        (changed(COUNTS, scale=2.0), "noise does not have the declared law and scale"),
        (changed(SUMS, scale=4.0), "noise does not have the declared law and scale"),
        (
            {**COUNTS, "call": "little_library:counts_of_those_there"},
            "the number of values that get noise depends on the data",
        ),
        (
            {**COUNTS, "call": "little_library:rows_beside", "noise": [{**LAPLACE, "scale": 1.0, "sensitivity": 2.0}]},
            "the output depends on the data outside of the named draws",
        ),
    ],
)
def test_a_fault_is_found_and_named(tmp_path: Path, body: dict[str, Any], found: str) -> None:
    """1000 values of noise of half the size are taken for the right ones with probability below 1e-6."""
    result = audited(tmp_path, body)
    assert result.refuted
    assert any(found in finding for finding in result.to_json()["findings"]), result.to_json()["findings"]


def test_a_replay_has_the_same_releases_where_a_draw_returns_noise_alone(tmp_path: Path) -> None:
    """Whether the second column is measured depends on what was released of the first, and so not on the data."""
    result = audited(tmp_path, {**MARGINALS, "object": {"scale": 2.0, "needed": 2.0}}, runs=100)
    assert not result.refuted, result.to_json()["findings"]


def test_a_choice_that_is_released_is_replayed(tmp_path: Path) -> None:
    """Without that, the columns of a replay are others than those of the recorded run."""
    body = {**MARGINALS, "object": {"scale": 2.0, "chosen": True}}
    found = audited(tmp_path, {**body, "releases": ["little_library:Marginals.select"]}, runs=100)
    assert not found.refuted
    assert found.to_json()["limitations"][0].startswith(
        "Assumed, and not checked: what little_library:Marginals.select returned is released"
    )
    assert found.limitations[0] in found.in_words()
    assert audited(tmp_path, body, runs=2).limitations == LIMITS
    assert audited(tmp_path, body, runs=100).refuted


def test_the_page_says_that_an_argument_holds_the_scale(tmp_path: Path) -> None:
    audit.mechanism(written(tmp_path, MARGINALS), runs=20, output=tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "argument scale" in page
    assert re.search("0[.]559[0-9]* scales", page)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({**MEAN, "cal": "x"}, "cal: is no key of a manifest; did you mean 'call'?"),
        ({key: value for key, value in MEAN.items() if key != "call"}, "call: is missing"),
        (changed(MEAN, law="cauchy"), "noise.0.law: input should be 'laplace', 'gaussian' or 'discrete_laplace'"),
        (changed(MEAN, scale_argument="value"), "noise.0: give either scale or scale_argument"),
        (
            changed(COUNTS, scale=None, scale_argument="value"),
            "noise.0: scale_argument: is for laplace and gaussian noise",
        ),
        (changed(MARGINALS, scale_argument="sigma"), "has no argument 'sigma'; its arguments are scale, size"),
        (changed(MARGINALS, scale_argument="size", draw="numpy.random:laplace"), "does not call numpy.random:laplace"),
        (changed(MARGINALS, query="little_library:Table.count"), "there is no 'count'; did you mean 'counts'?"),
        (
            changed(MARGINALS, query="little_library:sums"),
            "little_library:sums returned nothing before little_library:noise_of was called",
        ),
        ({**MEAN, "object": {}}, "object: is for a method, module:Class.method, and the call is 'little_library:mean'"),
        ({**MARGINALS, "object": {"sigma": 2}}, "little_library:Marginals.fit failed with TypeError"),
        (changed(MEAN, scale=0), "noise.0.scale: input should be greater than 0, not 0"),
        (changed(MEAN, query="valu"), "has no argument 'valu'; its arguments are value; or output or module:function"),
        (changed(MEAN, draw="little_library:Laplace.randomize"), "there is no 'randomize'; did you mean 'randomise'?"),
        ({**MEAN, "call": "little_library.mean"}, "call: must be module:function or module:Class.method"),
        ({**MEAN, "call": "no_such_library:mean"}, "call: cannot import 'no_such_library'"),
        ({**MEAN, "library": "no-such-library"}, "library: no distribution 'no-such-library' is installed"),
        ({**MEAN, "call": "little_library:_RANDOM"}, "call: little_library:_RANDOM is no function"),
        ({**MEAN, "call": "little_library:fails", "arguments": {}}, "little_library:fails failed with KeyError"),
        ({**MEAN, "call": "little_library:counts"}, "does not call little_library:Laplace.randomise"),
        ({**MEAN, "neighbors": []}, "neighbors: list should have at least 1 item"),
        ({**MEAN, "neighbors": [[1.0]]}, "neighbors: number 0 has 1 records and the data 4"),
        ({**COUNTS, "neighbors": [[1, 1, 1]]}, "a neighbour has one record more or less than the data"),
        (changed(SUMS, draw="little_library:Laplace.randomise"), "does not call little_library:Laplace.randomise"),
    ],
)
def test_a_mistake_in_the_manifest_is_one_line(tmp_path: Path, body: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        audited(tmp_path, body, runs=2)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "manifest.yaml"))


def test_the_command_prints_and_writes_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, changed(MEAN, sensitivity=0.125))
    result = run("audit", "mechanism", path, "--runs", 50, "-o", tmp_path / "out", "--json")
    body = json.loads(result.stdout)
    assert (result.returncode, body["refuted"]) == (1, True)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["findings"] == body["findings"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "REFUTED: a declaration does not hold" in page
    assert "This audit gives no bound on the privacy loss." in page
    assert body["findings"][0] in page.replace("&#39;", "'")
    assert body["manifest"]["sha256"] in page
    result = run("audit", "mechanism", written(tmp_path, COUNTS), "--runs", 50)
    assert result.returncode == 0
    assert "It does not show an ε" in result.stdout
