"""What a run made: how many documents, how long, how many complete; and runs with nothing in them."""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import command
import pytest
import small_claims
import yaml
from marginal_tables import pretend
from text_server import text_server

from dpassay.claims.lints import public_warnings
from dpassay.generators.documents import Documents
from dpassay.generators.registry import make_claim
from dpassay.reports.text import output_in_words

OTHERS = tuple(name for name in small_claims.GENERATORS if name not in ("median", "mean"))


def claim(tokens: int, **changes: Any) -> dict[str, Any]:
    """Private inference on made-up keys in two slots."""
    parameters = {"aggregate": "median", "clip": 10.0, "temperature": 0.5, "batch_size": 20, "tokens": tokens}
    return {
        "name": "keys",
        "data": {"source": "builtin", "name": "keys"},
        "mechanism": "private_inference",
        "parameters": {**parameters, "prefix": small_claims.PREFIX} | changes,
        "public": {"records": 40, "context_tokens": 26},
        "guarantee": {"type": "pure_dp", "epsilon": 1e6},
    }


def assayed(folder: Path, body: Mapping[str, Any], *options: str) -> command.Result:
    (folder / "claim.yaml").write_text(yaml.safe_dump(dict(body)))
    done = command.run("assay", folder / "claim.yaml", "-o", folder / "run", *options)
    assert done.returncode == 0, done.stderr
    return done


def refused(folder: Path) -> None:
    before = sorted(folder.iterdir())
    done = command.run("release", folder / "run", "-o", folder / "out")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "holds no complete document with text, so there is nothing to release" in done.stderr
    assert "make a new run in a new folder, which is charged anew" in done.stderr
    assert sorted(folder.iterdir()) == before


def rows_of(page: str) -> dict[str, str]:
    """The rows of tables of two columns on a page."""
    result = re.findall(r"<tr[^>]*><th[^>]*>([^<]*)</th><td[^>]*>([^<]*)</td></tr>", page)
    return {html.unescape(label): html.unescape(value).replace("\N{NO-BREAK SPACE}", " ") for label, value in result}


def test_one_token_makes_no_document_and_nothing_is_released(tmp_path: Path) -> None:
    """With one token, a document has no text even if it ends: so this holds whatever is drawn."""
    done = assayed(tmp_path, claim(1), "--json")
    result = json.loads(done.stdout)
    made = result["output"]
    assert made["documents"] == made["empty"] == made["complete"]
    assert "The run made no complete document with text, so it cannot be released" in result["warnings"][-1]
    shown = [json.loads(line) for line in done.stderr.splitlines()]
    before = [row["note"] for row in itertools.takewhile(lambda row: "stage" not in row, shown)]
    assert "1 token, its end included: hardly any text ends so soon" in before[-1]
    assert len(before) < len(shown), "it ran after that"
    again = command.run("generate", tmp_path / "claim.yaml", "-o", tmp_path / "run", "--json")
    assert "The run made no complete document with text" in json.loads(again.stderr.splitlines()[-1])["note"]
    refused(tmp_path)


@pytest.mark.grid
@pytest.mark.parametrize("generator", OTHERS)
def test_a_run_of_any_generator_without_documents_is_not_released(
    generator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Documents.__init__

    def without(self: Documents, columns: Mapping[str, str], rows: Sequence[Any], *files: Any, **more: Any) -> None:
        made(self, columns, [], *files, **more)

    pretend(monkeypatch)  # of OpenDP's tables
    with text_server() as server:
        small_claims.written(tmp_path / "case", generator, server.url)
        monkeypatch.setattr(Documents, "__init__", without)
        body = yaml.safe_load((tmp_path / "case" / "claim.yaml").read_text())
        done = assayed(tmp_path / "case", body | {"audits": []}, "--json")
        assert "The run made no complete document with text" in " ".join(json.loads(done.stdout)["warnings"])
    refused(tmp_path / "case")


def test_pages_json_and_terminal_count_the_documents(tmp_path: Path) -> None:
    """Two slots have the tokens of four keys and their ends each, and two more.

    80 of 80 keys ended in time, so one fails to with a chance of at most 0.037, at 95% confidence, and all eight with
    one of at most 1e-11.
    """
    said = assayed(tmp_path, claim(26)).stdout
    result = json.loads((tmp_path / "run" / "private" / "assay.json").read_text())
    released = command.run("release", tmp_path / "run", "-o", tmp_path / "out", "--json")
    assert released.returncode == 0, released.stderr
    texts = [json.loads(line)["text"] for line in (tmp_path / "out" / "synthetic.jsonl").read_text().splitlines()]
    lengths = sorted(map(len, texts))
    assert lengths
    counted = {"least": lengths[0], "median": median(lengths), "most": lengths[-1], "mean": fmean(lengths)}
    empty = sum(text.strip() == small_claims.PREFIX.strip() for text in texts)
    for made in (result["output"], json.loads(released.stdout)["output"]):
        assert {"documents", "empty", "characters", "complete", "ends"} == set(made)
        assert (made["documents"], made["complete"], made["empty"]) == (len(texts), len(texts), empty)
        assert made["characters"] == counted
    # A batch counts the documents that it began.
    assert result["unfinished"] == sum(batch["documents"] for batch in result["batches"]) - len(texts)
    assert f"Output: {len(texts)} complete document" in said
    assert json.loads(released.stdout)["unfinished"] == result["unfinished"]
    private = rows_of((tmp_path / "run" / "private" / "report.html").read_text())
    public = rows_of((tmp_path / "out" / "report.html").read_text())
    for page in (private, public):
        begun = len(texts) + result["unfinished"]
        assert (page["Documents"], page["Complete"]) == (str(len(texts)), f"{len(texts)} of {begun} that were begun")
        assert f"{lengths[-1]} characters" in page["Length"]
        assert ("mean " in page["Length"]) is (lengths[0] < lengths[-1])
    again = command.run("generate", tmp_path / "claim.yaml", "-o", tmp_path / "run", "--json")
    assert json.loads(again.stdout)["output"] == result["output"]


def test_records_of_another_kind_and_cut_ones_are_warned_of_in_private(tmp_path: Path) -> None:
    """The released page is the same whether or not the records are of a kind that the model knows."""
    notes = [f"Delivery {number} arrived two weeks late, and nobody answered the phone." for number in range(40)]
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in notes))
    body = claim(26) | {"data": {"source": "file", "path": "notes.jsonl", "text": "text"}}
    done = assayed(tmp_path, body)
    said = [line for line in done.stdout.splitlines() if line.startswith("Warning, private like the verdict: ")]
    result = json.loads((tmp_path / "run" / "private" / "assay.json").read_text())
    assert [line.partition(": ")[2] for line in said] == result["private_warnings"]
    unknown, cut = result["private_warnings"]
    assert "The embedded model does not know texts like the records: their median perplexity is" in unknown
    assert cut.startswith("40 of 40 records were cut to the first tokens that public.context_tokens leaves")
    assert "like the records" not in "".join(result["warnings"])
    private = html.unescape((tmp_path / "run" / "private" / "report.html").read_text())
    assert unknown.replace(" ", "") in private.replace("\N{NO-BREAK SPACE}", "").replace(" ", "")


def test_a_table_has_rows_without_lengths() -> None:
    made = Documents({"age": "int64", "sex": "string"}, [(31, "f"), (None, "m")]).output(
        whole=True, ends="Rows are whole."
    )
    assert output_in_words(made) == "2 complete rows"
    assert (made.documents, made.empty, made.characters) == (2, 0, None)


def test_lengths_in_words() -> None:
    columns = {"label": "string", "text": "string"}
    for texts, words in (
        ([], "0 documents"),
        (["a"], "1 document (1 character)"),
        (["key 1", "key ", "key 12345"], "3 documents (4 to 9 characters, mean 6, median 5; 1 without text)"),
    ):
        made = Documents(columns, [("x", text) for text in texts]).output(whole=False, ends="", prefix="key ")
        assert output_in_words(made) == words
        assert output_in_words(made, 2) == f"{words}, 2 more cut when tokens ran out"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"tokens": 2},
            "allow a text 2 tokens, its end included: hardly any text ends so soon",
        ),
        ({"tokens": 4}, "allow a text 4 tokens"),
        ({"tokens": 64, "document_tokens": 2}, "allow a text 2 tokens"),
        ({"tokens": 5}, ""),
        ({"tokens": 64, "document_tokens": 65}, "document_tokens is 65, but a slot samples 64 tokens in all"),
        ({"tokens": 64, "document_tokens": 64}, ""),
        ({"slot_threshold": 1000.0}, "slot_threshold is 1000, but a slot holds about 20 records"),
        ({"slot_threshold": 21.0}, ""),
    ],
)
def test_plans_without_complete_documents_are_warned_of(changes: dict[str, Any], words: str) -> None:
    result = make_claim(claim(**{"tokens": 64} | changes) | {"guarantee": None}).parameter_warnings()
    assert len(result) == bool(words)
    assert words in " ".join(result)


def test_writers_of_short_texts_are_warned_of() -> None:
    evolution = small_claims.evolution("aug_pe", "http://127.0.0.1:1/v1") | {"guarantee": None}
    for most, words in ((None, ""), (5, ""), (4, "parameters.writing.max_tokens allows a text 4 tokens")):
        evolution["parameters"]["writing"] = {"max_tokens": most}
        assert words in " ".join(public_warnings(make_claim(evolution)))
        assert bool(public_warnings(make_claim(evolution))) is bool(words)
    vectors = small_claims.vectors() | {"guarantee": None}
    assert make_claim(vectors).parameter_warnings() == []
    vectors["parameters"]["writing"]["longest"] = 1
    (said,) = make_claim(vectors).parameter_warnings()
    assert "parameters.writing.longest allows a text 1 token, its end included" in said
    assert "is kept as it was cut" in said


def test_a_prefix_without_room_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(claim(12, prefix="My 5-digit key is " * 4)))
    done = command.run("assay", tmp_path / "claim.yaml", "-o", tmp_path / "run")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "leaves 0 for each record after the template and the prefix" in done.stderr
    assert not (tmp_path / "run").exists()
