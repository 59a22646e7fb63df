"""How rows are computed, at the front door: what a claim says of it, what a verdict rests on, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import command
import pytest
import torch
import transformers
from small_models import byte_tokenizer
from whole_documents import every_document_ends

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.records import Record
from dpassay.mechanisms.models import row_shapes
from dpassay.mechanisms.models.decoding import RowShape
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate

CLAIM = """
name: small
data: {source: file, path: notes.jsonl}
mechanism: private_inference
parameters: {aggregate: mean, clip: 4.0, temperature: 2.0, batch_size: 6, tokens: 4, PARAMETERSdocument_tokens: 4}
public: {records: 12, labels: [], PUBLIC}
guarantee: {type: pure_dp, epsilon: 100.0}
audits: [record_replay]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, make_model: Callable[..., Path]) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "small", "llama")


def write(folder: Path, parameters: str = "", public: str = "context_tokens: 40", count: int = 12) -> Path:
    rows = [{"text": f"note {index} of the patient"} for index in range(count - 1)]
    rows.append({"text": "the patient came twice and then " * 30})
    (folder / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "claim.yaml"
    path.write_text(CLAIM.replace("PARAMETERS", parameters).replace("PUBLIC", public))
    return path


def assayed(tmp_path: Path, model: Path, parameters: str = "", code: int = 0) -> dict[str, Any]:
    claim, output = write(tmp_path, parameters), tmp_path / "out"
    result = command.run("assay", claim, "-o", output, "--model", model, "--device", "cpu", "--json")
    assert result.returncode == code, result.stderr
    outcome: dict[str, Any] = json.loads((output / "private" / "assay.json").read_text())
    return outcome


def test_a_run_of_fixed_shapes_is_supported_and_says_at_which_shape_it_was_verified(
    tmp_path: Path, model: Path
) -> None:
    result = assayed(tmp_path, model)
    assert result["verdict"] == "SUPPORTED"
    said = "8 rows of 40 tokens, with a cache of 44 positions"
    best = result["best_upper"]
    assert best["rigor"] == "certified"
    assert any(said in line and "verified bit for bit at this shape" in line for line in best["assumptions"])
    assert result["implementation"]["rows"] == said
    assert result["implementation"]["records that were cut to the public length"] == "1 of 12"
    with Ledger.open(tmp_path / "out" / "private" / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.run("small").about["rows"] == {"exact": True, "shapes": [[None, 8, 40, 44]]}


def test_packed_rows_prove_nothing(tmp_path: Path, model: Path) -> None:
    """The same claim, with shapes that follow the data: every bound is an estimate, and the verdict says why."""
    with every_document_ends():
        result = assayed(tmp_path, model, "rows: packed, ", code=4)
    assert result["verdict"] == "UNPROVEN"
    uppers = [bound for bound in result["bounds"] if bound["direction"] == "upper"]
    assert uppers
    assert {bound["rigor"] for bound in uppers} == {"estimate"}
    assert all("Rows are packed" in bound["assumptions"][-1] for bound in uppers)
    assert result["best_upper"] is None
    refused = command.run("release", tmp_path / "out", "-o", tmp_path / "released")
    assert refused.returncode == 2
    assert "--accept" in refused.stderr
    assert not (tmp_path / "released").exists()


def test_an_account_of_packed_rows_is_an_estimate(tmp_path: Path, model: Path) -> None:
    """Of the ledger and of the claim; the same run of fixed shapes is certified."""
    for parameters, rigor in (("rows: packed, ", "estimate"), ("", "certified")):
        folder = tmp_path / rigor
        folder.mkdir()
        claim, output = write(folder, parameters), folder / "out"
        assert command.run("generate", claim, "-o", output, "--model", model, "--device", "cpu").returncode == 0
        for file in (output / "private" / "ledger.sqlite", claim):
            result = command.run("account", file, "--method", "basic", "--json")
            assert result.returncode == 0, result.stderr
            assert [bound["rigor"] for bound in json.loads(result.stdout)["bounds"]] == [rigor]


def test_rows_that_are_exact_at_no_number_of_rows_prove_nothing(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a device whose kernels do not repeat themselves."""
    monkeypatch.setattr(row_shapes, "verify", lambda network, vocabulary_size, shape: False)
    result = assayed(tmp_path, model, code=4)
    assert result["verdict"] == "UNPROVEN"
    assert "depend on the rows beside it" in result["bounds"][0]["assumptions"][-1]


def test_a_run_does_not_resume_where_rows_are_computed_otherwise(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assayed(tmp_path, model)

    def smaller(network: Any, vocabulary_size: int, wanted: RowShape) -> tuple[RowShape, bool]:
        return RowShape(1, wanted.context, wanted.positions, wanted.pinned), True

    monkeypatch.setattr(row_shapes, "find", smaller)
    arguments = (tmp_path / "claim.yaml", "-o", tmp_path / "out", "--model", model, "--device", "cpu")
    result = command.run("assay", *arguments)
    assert result.returncode == 2
    assert "began with another 'rows'" in result.stderr


def test_a_mixture_of_experts_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    tokenizer = byte_tokenizer()
    config = transformers.MixtralConfig(
        **shape,
        num_key_value_heads=2,
        vocab_size=len(tokenizer),
        num_local_experts=4,
        max_position_embeddings=128,
        eos_token_id=0,
        bos_token_id=None,
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    claim, output = write(tmp_path), tmp_path / "out"
    for name in ("assay", "generate"):
        result = command.run(name, claim, "-o", output, "--model", tmp_path / "model", "--device", "cpu")
        assert result.returncode == 2
        assert result.stderr.count("\n") == 1
        assert "MixtralForCausalLM, which is not known to compute each row of a batch by itself" in result.stderr
        assert not output.exists()


@pytest.mark.parametrize(
    ("public", "message"),
    [
        ("context_tokens: 0", "public.context_tokens: must be a whole number of at least 1"),
        ("context_tokens: true", "public.context_tokens: must be a whole number of at least 1"),
        ("context_tokens: {a: 20}", "'a', which is not among the labels"),
        ("context_tokens: {a: true}", "or one for each label"),
        ("context_tokens: {}", "must name every label"),
        ("context_tokens: 126", "the model has 128 positions, of which 124 remain for a context"),
        ("context_tokens: 2", "a context of 2 tokens leaves"),
    ],
)
def test_lengths_that_cannot_be_are_one_line(public: str, message: str, tmp_path: Path, model: Path) -> None:
    claim, output = write(tmp_path, public=public), tmp_path / "out"
    result = command.run("generate", claim, "-o", output, "--model", model, "--device", "cpu")
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not output.exists()


def test_only_private_inference_has_contexts_of_a_length(tmp_path: Path) -> None:
    claims = Path(__file__).resolve().parents[3] / "examples" / "claims"
    text = (claims / "notes-aug-pe.yaml").read_text()
    (tmp_path / "claim.yaml").write_text(text.replace("records: ", "context_tokens: 20, records: ", 1))
    result = command.run("account", tmp_path / "claim.yaml")
    assert result.returncode == 2
    assert "public.context_tokens: is for mechanism private_inference only" in result.stderr


def test_a_ledger_of_the_library_says_how_its_rows_were_computed(tmp_path: Path, model: Path) -> None:
    """Also where the run says nothing public of it."""
    loaded = LanguageModel.load(model, device="cpu")
    records = [Record(f"id-{index}", f"note {index}") for index in range(6)]
    ways: list[tuple[Literal["packed", "fixed"], str]] = [("packed", "estimate"), ("fixed", "certified")]
    for rows, rigor in ways:
        chosen = PrivateInference(
            aggregate="mean", clip=4.0, temperature=2.0, batch_size=3, tokens=2, records=6, rows=rows
        )
        path = tmp_path / f"{rows}.sqlite"
        with Ledger.open(path, anchor=tmp_path / "anchor") as ledger:
            plan = chosen.plan()
            run = ledger.begin("run", plan=plan, adjacency=chosen.adjacency, unit=chosen.unit, about={})
            generate(chosen, records, loaded, run, key=bytes(32))
            run.finish()
        result = command.run("account", path, "--method", "basic", "--json")
        assert [bound["rigor"] for bound in json.loads(result.stdout)["bounds"]] == [rigor]


def test_a_template_that_fails_on_a_record_shows_nothing_of_it(tmp_path: Path, model: Path) -> None:
    """It renders with the example of the check, and not with a record."""
    for broken in ("{{ {}[t] }}", "{{ 1 / (t|length - 5) }}" * 2, "{{ t|nothing }}"):
        template = "{% for t in examples %}{{ t }}{% if t != 'probe' and t|length > 0 %}BROKEN{% endif %}{% endfor %}"
        quoted = json.dumps(template.replace("BROKEN", broken))
        claim = write(tmp_path, f"template: {quoted}, ")
        (tmp_path / "notes.jsonl").write_text('{"text": "alice"}\n' * 3)
        result = command.run("generate", claim, "-o", tmp_path / "out", "--model", model, "--device", "cpu", "-q")
        assert result.returncode == 2
        assert result.stderr.count("\n") == 1
        assert "alice" not in result.stderr


def test_a_template_cannot_draw_at_random(tmp_path: Path, model: Path) -> None:
    claim = write(tmp_path, 'template: "{{ examples|random }}", ')
    result = command.run("generate", claim, "-o", tmp_path / "out", "--model", model, "--device", "cpu")
    assert result.returncode == 2
    assert "template does not render" in result.stderr


def test_a_page_names_the_model_that_wrote(tmp_path: Path, model: Path) -> None:
    assert assayed(tmp_path, model)["claim"]["model"] == "small"


def test_a_model_whose_forward_pass_fails_is_one_line(tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "odd"
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"layer_types": ["full_attention"] * 3}))
    result = command.run("generate", write(tmp_path), "-o", tmp_path / "out", "--model", folder, "--device", "cpu")
    assert result.returncode == 2
    assert "this architecture or configuration is not supported (AttributeError" in result.stderr
