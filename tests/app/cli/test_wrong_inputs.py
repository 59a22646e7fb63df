"""Wrong and odd records and models at the command line: one line on standard error, nothing private in it, nothing
half-written, and the same command works once the input is mended. Odd input that is no mistake runs as documented."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command
import pyarrow
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import load_file, save_file

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.claims.base import Claim
from dpassay.data.records import with_content_ids
from dpassay.generators.registry import read_claim
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.slot_inputs import SlotInputs

CLAIM = """
name: tiny
data: {source: file, path: data.KIND, COLUMNS}
unit: UNIT
mechanism: private_inference
parameters: {aggregate: median, clip: 10.0, temperature: 1.2, batch_size: 2, tokens: 4}
public: {records: 6, labels: LABELS}
guarantee: {type: pure_dp, epsilon: 100000.0}
"""
GOOD = [{"text": f"note {i}", "topic": "ab"[i % 2], "key": str(i), "who": f"user {i // 2}"} for i in range(6)]
EMPTY, ID, LABEL, USER = "text: text", "id: key", "label: topic", "user: who"


def lines(*rows: dict[str, Any] | str) -> bytes:
    """JSON Lines; a row that is a string is put as it is."""
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows).encode()


def table(pairs: Sequence[tuple[str, Any]] = (), **columns: Any) -> bytes:
    """A Parquet file."""
    file, named = io.BytesIO(), [*pairs, *columns.items()]
    arrays = [pyarrow.array(values) for _, values in named]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, names=[name for name, _ in named]), file)
    return file.getvalue()


def good(kind: str) -> bytes:
    match kind:
        case "jsonl":
            return lines(*GOOD)
        case "csv":
            return "\n".join([",".join(GOOD[0]), *(",".join(row.values()) for row in GOOD)]).encode()
    return table([(name, [row[name] for row in GOOD]) for name in GOOD[0]])


@dataclass
class Case:
    """A claim and its data in a folder."""

    folder: Path
    kind: str
    columns: str = EMPTY
    unit: str = "record"

    def __post_init__(self) -> None:
        labels = "[a, b]" if "label" in self.columns else "[]"
        claim = CLAIM.replace("COLUMNS", self.columns).replace("KIND", self.kind)
        self.claim.write_text(claim.replace("UNIT", self.unit).replace("LABELS", labels))

    @property
    def claim(self) -> Path:
        return self.folder / "claim.yaml"

    @property
    def output(self) -> Path:
        return self.folder / "run"

    def write(self, content: bytes) -> None:
        (self.folder / f"data.{self.kind}").write_bytes(content)

    def run(self, name: str = "generate", *options: object) -> command.Result:
        return command.run(name, self.claim, "-o", self.output, "--device", "cpu", *options)

    def refused(self, says: str, *options: object, name: str = "generate") -> None:
        result = self.run(name, *options)
        assert result.returncode == 2, result.stderr
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1, result.stderr
        assert result.stderr.startswith("dpassay: ")
        assert says in result.stderr
        assert "SECRET" not in result.stderr
        assert not self.output.exists()

    def runs(self, *options: object) -> Claim:
        """The command succeeds, every slot wrote all its tokens, and the whole plan is charged."""
        result = self.run("generate", *options)
        assert result.returncode == 0, result.stderr
        claim = read_claim(self.claim)
        mechanism = claim.generator()
        assert isinstance(mechanism, PrivateInference)
        with Ledger.open(self.output / "private" / "ledger.sqlite", read_only=True) as ledger:
            ledger.verify()
            assert ledger.event() == mechanism.plan()
            steps = [ledger.run("tiny").outcome(f"tokens/{step}") for step in range(mechanism.tokens)]
        assert all(len(step.value["tokens"]) == mechanism.total_slots for step in steps if step is not None)
        assert None not in steps
        names = {"synthetic.jsonl", "synthetic.parquet", "batching-key.txt", "ledger.sqlite"}
        assert {path.name for path in (self.output / "private").iterdir()} == names
        assert [path.name for path in self.output.iterdir()] == ["private"]
        return claim


ROW = {"text": "SECRET one", "topic": "a", "key": "SECRET-1", "who": "SECRET-ann"}
HALF = json.dumps("SECRET \ud800")

REFUSED: dict[str, tuple[str, str, bytes, str]] = {
    "jsonl of no bytes": ("jsonl", EMPTY, b"", "holds no record"),
    "jsonl of blank lines": ("jsonl", EMPTY, b"\n  \n\r\n", "holds no record"),
    "jsonl of a BOM": ("jsonl", EMPTY, b"\xef\xbb\xbf", "holds no record"),
    "csv of no bytes": ("csv", EMPTY, b"", "holds no record"),
    "csv of a header": ("csv", EMPTY, b"text,key\n", "holds no record"),
    "csv of blank lines": ("csv", EMPTY, b"\n\n\r\n", "holds no record"),
    "parquet of no bytes": ("parquet", EMPTY, b"", "is not a Parquet file"),
    "parquet without rows": ("parquet", EMPTY, table(text=pyarrow.array([], pyarrow.string())), "holds no record"),
    "parquet cut short": ("parquet", EMPTY, table(text=["SECRET"])[:-9], "is not a Parquet file"),
    "jsonl with an id twice": ("jsonl", ID, lines(ROW, {**ROW, "text": "SECRET two"}), "two records have the same id"),
    "csv with an id twice": ("csv", ID, b"text,key\nSECRET,K\nSECRET two,K\n", "two records have the same id"),
    "parquet with an id twice": ("parquet", ID, table(text=["SECRET", "b"], key=[7, 7]), "two records have the same"),
    "ids 1 and '1'": ("jsonl", ID, lines({"text": "a", "key": 1}, {"text": "b", "key": "1"}), "two records have the"),
    "jsonl with another label": ("jsonl", LABEL, lines({**ROW, "topic": "SECRET"}), "not in the public list of labels"),
    "csv with another label": (
        "csv",
        LABEL,
        b"text,topic\nx,a\nx,SECRET\n",
        "data.csv, line 3: column 'topic' holds a label that is not in the public list of labels",
    ),
    "parquet with another label": ("parquet", LABEL, table(text=["x"], topic=["SECRET"]), "not in the public list"),
    "a label with a space": ("jsonl", LABEL, lines({**ROW, "topic": "a "}), "not in the public list of labels"),
    "a label that is null": ("jsonl", LABEL, lines({**ROW, "topic": None}), "line 1: column 'topic' must hold"),
    "a label that is NaN": ("jsonl", LABEL, lines({**ROW, "topic": float("nan")}), "line 1: column 'topic' must hold"),
    "jsonl in Latin-1": ("jsonl", EMPTY, '{"text": "SECRET é"}'.encode("latin-1"), "is not UTF-8 text"),
    "csv in Latin-1": (
        "csv",
        EMPTY,
        "text\nx\nSECRET é\n".encode("latin-1"),
        "data.csv, line 3: is not UTF-8 text; save it as UTF-8, or state how it is written, such as `encoding:",
    ),
    "jsonl in UTF-16": ("jsonl", EMPTY, '{"text": "SECRET"}'.encode("utf-16"), "is not UTF-8 text"),
    "jsonl with a raw surrogate": ("jsonl", EMPTY, b'{"text": "SECRET \xed\xa0\x80"}', "is not UTF-8 text"),
    "parquet in Latin-1": (
        "parquet",
        EMPTY,
        table(text=pyarrow.Array.from_buffers(pyarrow.string(), 1, pyarrow.array([b"SECRET \xe9"]).buffers())),
        "is not UTF-8 text",
    ),
    "half a pair in a text": ("jsonl", EMPTY, lines(ROW, f'{{"text": {HALF}}}'), "line 2: column 'text' has an"),
    "half a pair in an id": ("jsonl", ID, lines(f'{{"text": "x", "key": {HALF}}}'), "column 'key' has an unpaired"),
    "half a pair in a label": ("jsonl", LABEL, lines(f'{{"text": "x", "topic": {HALF}}}'), "column 'topic' has an"),
    "half a pair in a user": ("jsonl", USER, lines(f'{{"text": "x", "who": {HALF}}}'), "column 'who' has an unpaired"),
    "a raw NUL in JSON": ("jsonl", EMPTY, b'{"text": "SECRET \0"}', "line 1: is not JSON"),
    "JSON that breaks off": ("jsonl", EMPTY, b'{"text": "SECRET', "line 1: is not JSON"),
    "JSON on several lines": ("jsonl", EMPTY, json.dumps([ROW], indent=1).encode(), "line 1: is not JSON"),
    "JSON nested deeply": ("jsonl", EMPTY, b"[" * 100_000, "line 1: is not JSON"),
    "a number of 5000 digits": ("jsonl", EMPTY, b'{"x": ' + b"1" * 5000 + b"}", "line 1: is not JSON"),
    "a quote that does not end": ("csv", EMPTY, b'text\nx\n"SECRET\ny\n', "is not CSV; check that every quote"),
    "two columns of one name": ("csv", EMPTY, b"text,text\nSECRET,x\n", "has 2 columns 'text'"),
    "parquet, two of one name": ("parquet", EMPTY, table([("text", ["SECRET"]), ("text", ["x"])]), "has 2 columns"),
    "JSON numbers as texts": ("jsonl", EMPTY, lines({"text": 424242}), "line 1: column 'text' must hold text"),
    "parquet numbers as texts": ("parquet", EMPTY, table(text=[424242]), "row 1: column 'text' must hold text"),
    "parquet bytes as texts": ("parquet", EMPTY, table(text=[b"SECRET"]), "row 1: column 'text' must hold text"),
    "parquet times out of range": (
        "parquet",
        ID,
        table(text=["SECRET"], key=pyarrow.array([2**61], pyarrow.timestamp("us"))),
        "has values that are neither text nor numbers",
    ),
    "a text that is null": ("jsonl", EMPTY, lines(ROW, {"text": None}), "line 2: column 'text' must hold"),
    "a text that is NaN": ("jsonl", EMPTY, lines({"text": float("nan")}), "line 1: column 'text' must hold"),
    "an empty cell": ("csv", EMPTY, b"text,key\nSECRET,1\n,2\n", "line 3: column 'text' must hold"),
    "a parquet cell of none": ("parquet", EMPTY, table(text=["SECRET", None]), "row 2: column 'text' must hold"),
    "a parquet NaN": ("parquet", ID, table(text=["SECRET"], key=[float("nan")]), "row 1: column 'key' must hold"),
    "parquet without the column": ("parquet", EMPTY, table(note=["SECRET"]), "'text'; the columns are 'note'"),
    "csv with another column": (
        "csv",
        EMPTY,
        b"key,texts\n1,SECRET\n",
        "data.csv, line 1: there is no column 'text'; the columns are 'key', 'texts'; did you mean 'texts'?",
    ),
    "csv without a header": ("csv", EMPTY, b"1,SECRET\n", "data.csv, line 1: there is no column 'text' among its 2"),
    "jsonl with another column": ("jsonl", EMPTY, lines({"texts": "SECRET"}), "did you mean 'texts'?; give the name"),
    "jsonl of chats": ("jsonl", EMPTY, lines({"text": ["SECRET"]}), "line 1: column 'text' holds a list and no"),
    "parquet of chats": ("parquet", EMPTY, table(text=[[{"role": "SECRET", "content": "x"}]]), "state `join: turns`"),
    "a text that is an object": ("jsonl", EMPTY, lines({"text": {"SECRET": 1}}), "'text' holds an object and no"),
    "an id that is a list": ("jsonl", ID, lines({"text": "x", "key": ["SECRET"]}), "column 'key' must hold a string"),
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("name", REFUSED)
def test_wrong_records_are_one_line_until_they_are_mended(name: str, tmp_path: Path) -> None:
    kind, columns, content, says = REFUSED[name]
    case = Case(tmp_path, kind, columns)
    case.write(content)
    for job in ("generate", "assay"):
        case.refused(says, name=job)
    case.write(good(kind))
    case.runs()


def test_the_same_assay_works_on_mended_records(tmp_path: Path) -> None:
    case = Case(tmp_path, "jsonl", LABEL)
    case.write(lines(ROW, {**ROW, "topic": "SECRET"}))
    case.refused("not in the public list", name="assay")
    case.write(good("jsonl"))
    assert case.run("assay").returncode == 0


def test_a_record_without_its_user_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path, "jsonl", EMPTY, unit="user")
    case.write(lines(ROW))
    case.refused("unit user needs a user for every record")
    case = Case(tmp_path, "jsonl", USER, unit="user")
    case.runs()


def test_an_assay_on_canaries_that_cannot_start_keeps_none(tmp_path: Path) -> None:
    """Canaries are drawn for a number of records: those of a refused claim would stay for the mended one."""
    case = Case(tmp_path, "jsonl")
    data, long = "{source: builtin, name: keys}", f'tokens: 4, prefix: "{"many words " * 200}"'
    text = case.claim.read_text().replace("{source: file, path: data.jsonl, text: text}", data)
    case.claim.write_text(text.replace("tokens: 4", long) + "audits: [reconstruction]\n")
    case.refused("after the template and the prefix", name="assay")


ACCEPTED: dict[str, tuple[str, str, bytes, list[str]]] = {
    "one record": ("jsonl", EMPTY, lines({"text": "x"}), ["x"]),
    "one record in csv": ("csv", EMPTY, b"text\nx", ["x"]),
    "one record in parquet": ("parquet", EMPTY, table(text=["x"]), ["x"]),
    "equal content": ("jsonl", EMPTY, lines({"text": "x"}, {"text": "x"}, {"text": "y"}), ["x", "x", "y"]),
    "equal content in csv": ("csv", EMPTY, b"text\nx\nx\n", ["x", "x"]),
    "equal content in parquet": ("parquet", EMPTY, table(text=["x", "x"]), ["x", "x"]),
    "equal content, other ids": ("csv", ID, b"text,key\nx,1\nx,2\n", ["x", "x"]),
    "a label without records": ("jsonl", LABEL, lines(ROW, {**ROW, "key": "2"}), ["SECRET one", "SECRET one"]),
    "a BOM": ("jsonl", EMPTY, b"\xef\xbb\xbf" + lines({"text": "x"}), ["x"]),
    "a BOM in csv": ("csv", EMPTY, b"\xef\xbb\xbftext\nx\n", ["x"]),
    "NUL": ("jsonl", EMPTY, lines({"text": "a\0b"}, {"text": "\0"}), ["a\0b", "\0"]),
    "NUL in csv": ("csv", EMPTY, b"text\na\0b\n", ["a\0b"]),
    "NUL in parquet": ("parquet", EMPTY, table(text=["a\0b"]), ["a\0b"]),
    "NUL in an id": ("jsonl", ID, lines({"text": "x", "key": "a\0"}, {"text": "y", "key": "a"}), ["x", "y"]),
    "white space": ("jsonl", EMPTY, lines({"text": "  "}, {"text": "\n\t"}), ["  ", "\n\t"]),
    "white space in csv": ("csv", EMPTY, b"text\n  \n", ["  "]),
    "numbers in csv": ("csv", EMPTY, b"text\n5\n7.5\n", ["5", "7.5"]),
    "a whole pair": ("jsonl", EMPTY, b'{"text": "\\ud83d\\ude00"}', ["\U0001f600"]),
    "ids of both types": ("jsonl", ID, lines({"text": "x", "key": 1}, {"text": "y", "key": "2"}), ["x", "y"]),
    "special tokens": ("jsonl", EMPTY, lines({"text": "<|end|> x <|endoftext|>"}), ["<|end|> x <|endoftext|>"]),
    "other columns of any kind": (
        "parquet",
        EMPTY,
        table(text=["x"], when=pyarrow.array([2**61], pyarrow.timestamp("us"))),
        ["x"],
    ),
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("name", ACCEPTED)
def test_odd_records_run_as_they_are(name: str, tmp_path: Path) -> None:
    kind, columns, content, texts = ACCEPTED[name]
    case = Case(tmp_path, kind, columns)
    case.write(content)
    records = case.runs().load_records()
    assert [record.text for record in records] == texts
    assert len({record.id for record in records}) == len(texts)


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_record_longer_than_the_context_is_cut_by_itself(kind: str, tmp_path: Path) -> None:
    """A record of a million words in one line; what the model is shown of the others is the same without it."""
    texts = ["one", "two words", "abc " * 1_000_000, "three"]
    case = Case(tmp_path, kind)
    case.write(
        lines(*({"text": text} for text in texts))
        if kind == "jsonl"
        else ("text\n" + "\n".join(texts)).encode()
        if kind == "csv"
        else table(text=texts)
    )
    mechanism, model = case.runs().generator(), LanguageModel.load("builtin", "cpu")
    assert isinstance(mechanism, PrivateInference)

    def shown(texts: list[str]) -> list[list[int]]:
        inputs = SlotInputs(mechanism, with_content_ids((text, None, None) for text in texts), model, bytes(32))
        return sorted(context for slot in range(mechanism.total_slots) for context in inputs.slot(slot).contexts)

    whole, without = shown(texts), shown([text for text in texts if len(text) < 100])
    (cut,) = [context for context in whole if context not in without]
    assert sorted([*without, cut]) == whole
    end = list(model.end_of_text_ids[:1])
    kept = mechanism.prompt(model, None).record_tokens
    assert cut == [*end, *model.encode("abc " * 1000)[:kept], *end]


@pytest.fixture(scope="module")
def saved(make_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights, to copy and to damage."""
    return make_model(tmp_path_factory.mktemp("models") / "whole")


def edit(file: Path, **changes: Any) -> None:
    """Sets keys of a JSON file; None deletes them."""
    body = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in body.items() if value is not None}))


def with_rows(folder: Path, rows: int) -> None:
    """The model with another number of rows in its embedding."""
    weights = load_file(folder / "model.safetensors")
    old = weights["transformer.wte.weight"]
    weights["transformer.wte.weight"] = torch.cat([old, old])[:rows].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    edit(folder / "config.json", vocab_size=rows)


def without_one(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["transformer.h.1.mlp.c_fc.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def with_nan(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["transformer.h.1.mlp.c_fc.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def with_code(folder: Path) -> None:
    edit(folder / "config.json", model_type="own", auto_map={"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"})
    (folder / "own.py").write_text("raise SystemExit('the code of the folder was run')")


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("token*"):
        file.unlink()


def broken(name: str, size: int) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def nothing(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def with_positions(folder: Path, count: int) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["transformer.wpe.weight"] = weights["transformer.wpe.weight"][:count].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    edit(folder / "config.json", n_positions=count)


DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "an empty folder": (nothing, "is not a model folder"),
    "pickled weights only": (pickled, "it needs config.json, *.safetensors and a tokenizer"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "is not a model folder"),
    "a config cut short": (broken("config.json", 9), "config.json is not valid JSON"),
    "weights cut short": (broken("model.safetensors", 999), "is not in the format safetensors"),
    "weights of another size": (lambda folder: edit(folder / "config.json", n_embd=16), "other shapes than"),
    "a weight missing": (without_one, "1 of its weights are missing from the files"),
    "a weight that is NaN": (with_nan, "some logits are not finite"),
    "no tokenizer": (without_tokenizer, "files of the tokenizer are missing"),
    "a tokenizer cut short": (broken("tokenizer.json", 9), "tokenizer.json is not valid JSON"),
    "fewer rows than tokens": (lambda folder: with_rows(folder, 270), "its tokenizer has 300 tokens"),
    "code of its own": (with_code, "is not supported by transformers"),
    "an encoder": (lambda folder: edit(folder / "config.json", model_type="vit"), "for this kind of AutoModel"),
    "eight positions": (
        lambda folder: with_positions(folder, 8),
        "a context of 4 tokens leaves 0 for each record",
    ),
}  # fmt: skip


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Good records, with special tokens among their words."""
    case = Case(tmp_path, "jsonl")
    case.write(lines(*({"text": f"SECRET {i} <|end|> <|pad|> <|more|>"} for i in range(6))))
    return case


@pytest.mark.grid
@pytest.mark.parametrize("name", DAMAGED)
def test_a_wrong_model_is_one_line(name: str, saved: Path, case: Case) -> None:
    damage, says = DAMAGED[name]
    folder = case.folder / "model"
    shutil.copytree(saved, folder)
    damage(folder)
    case.refused(says, "--model", folder)


def test_a_mended_model_runs(saved: Path, case: Case) -> None:
    folder = case.folder / "model"
    shutil.copytree(saved, folder)
    pickled(folder)
    case.refused("is not a model folder", "--model", folder)
    shutil.copy(saved / "model.safetensors", folder)
    case.runs("--model", folder)


def without_ends(folder: Path) -> None:
    edit(folder / "config.json", eos_token_id=None, bos_token_id=None)
    edit(folder / "generation_config.json", eos_token_id=None, bos_token_id=None)
    edit(folder / "tokenizer_config.json", eos_token=None)
    assert LanguageModel.load(folder, "cpu").end_of_text_ids == ()


def with_more(folder: Path) -> None:
    """A token that the tokenizer was given and the weights were not, as released models have them."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    added = {**tokenizer["added_tokens"][0], "id": 300, "content": "<|more|>"}
    edit(folder / "tokenizer.json", added_tokens=[*tokenizer["added_tokens"], added])
    model = LanguageModel.load(folder, "cpu")
    assert model.tokenizer.encode("<|more|>", add_special_tokens=False) == [300]
    assert model.encode("a<|more|>b") == [*model.encode("a"), *model.encode("b")]
    assert model.vocabulary_size == 300


ODD: dict[str, Callable[[Path], Any]] = {
    "no pad and no beginning": lambda folder: None,
    "no end of text": without_ends,
    "more rows than tokens": lambda folder: with_rows(folder, 320),
    "a token more than rows": with_more,
    "pickled weights beside": lambda folder: (folder / "pytorch_model.bin").write_bytes(b"not to be opened"),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", ODD)
def test_an_odd_model_runs(name: str, saved: Path, case: Case) -> None:
    folder = case.folder / "model"
    shutil.copytree(saved, folder)
    ODD[name](folder)
    case.runs("--model", folder)


def test_a_model_with_pad_and_beginning_runs(make_model: Callable[..., Path], case: Case) -> None:
    folder = make_model(case.folder / "model", pad_token="<|pad|>", bos_token="<|begin|>")
    assert LanguageModel.load(folder, "cpu").beginning_ids
    case.runs("--model", folder)
