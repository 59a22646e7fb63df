"""Claim files: what is read, what is refused, and in which words."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from dpassay.accounting.guarantees import ApproxDP, ExPostDP
from dpassay.base.errors import InputError
from dpassay.generators.registry import json_schema, read_claim

CLAIMS = Path(__file__).resolve().parents[2] / "examples" / "claims"

GOOD = """
name: good
data: {source: builtin, name: keys}
mechanism: private_inference
parameters: {aggregate: median, clip: 10.0, temperature: 1.2, batch_size: 63, tokens: 64}
public: {records: 4096}
guarantee: {type: ex_post, epsilon: 3.0}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "claim.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(CLAIMS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_claims_are_valid_and_named_after_their_file(path: Path) -> None:
    claim = read_claim(path)
    assert claim.name == path.stem
    assert claim.claimed() is not None
    jsonschema.validate(yaml.safe_load(path.read_text()), json_schema())


def test_defaults(tmp_path: Path) -> None:
    claim = read_claim(write(tmp_path, GOOD))
    assert (claim.adjacency, claim.unit, claim.variant, claim.model) == ("add_remove", "record", "sound", "builtin")
    assert claim.claimed() == ExPostDP(3.0)


def test_a_claim_reads_the_files_of_its_parameters(tmp_path: Path) -> None:
    """An output folder may not hold what a run reads."""
    text = GOOD.replace("tokens: 64", "tokens: 64, centres: c.safetensors, kept_centres: 3")
    assert read_claim(write(tmp_path, text)).reads() == [None, tmp_path / "c.safetensors"]
    listed = (CLAIMS / "secrets-evolution.yaml").read_text().replace("{pattern: '\\b\\d{5}\\b'}", "{list: s.txt}")
    assert read_claim(write(tmp_path, listed)).reads() == [None, tmp_path / "s.txt"]


def test_delta_from_the_public_number_of_records(tmp_path: Path) -> None:
    text = GOOD.replace("{type: ex_post, epsilon: 3.0}", "{type: approx_dp, epsilon: 1.0, delta: n^-1.1}")
    # 4096 = 2^12, so 4096^-1.1 = 2^-13.2.
    guarantee = read_claim(write(tmp_path, text)).claimed()
    assert isinstance(guarantee, ApproxDP)
    assert guarantee.delta == pytest.approx(2**-13.2, rel=1e-14)


def test_a_number_in_scientific_notation_is_a_number(tmp_path: Path) -> None:
    text = GOOD.replace("{type: ex_post, epsilon: 3.0}", "{type: approx_dp, epsilon: 1, delta: 1e-5}")
    assert read_claim(write(tmp_path, text)).claimed() == ApproxDP(1.0, 1e-5)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("clip: 10.0", "clip: -1", "clip"),
        ("clip: 10.0", "clip: true", "clip"),
        ("clip: 10.0", "clipp: 10.0", "parameters.clip"),
        ("clip: 10.0,", "", "parameters.clip: is missing"),
        ("tokens: 64", "tokens: 64, budget: 3", "parameters.budget: unknown key; known are"),
        ("temperature: 1.2", "temperature: 0", "temperature"),
        ("batch_size: 63", "batch_size: 0", "batch_size"),
        ("aggregate: median", "aggregate: mode", "aggregate"),
        ("records: 4096", "records: 0", "public.records"),
        ("records: 4096", "records: 100001", "there are 100000 keys"),
        ("name: good", "name: ../evil", "name"),
        ("name: good", "name: good\ncolour: red", "colour: unknown key; known are name, data"),
        ("name: good", "name: good\nname: twice", "'name' is given twice"),
        (
            "name: good",
            "name: good\nunit: planet",
            "unit must be record, user, user(k), group(k) or secret, not 'planet'",
        ),
        ("type: ex_post", "type: magic", "guarantee"),
        ("epsilon: 3.0", "epsilon: -3.0", "epsilon must be at least 0"),
        ("epsilon: 3.0", "epsilon: .nan", "epsilon"),
        ("epsilon: 3.0", "epsilon: 3.0, mu: 1", "guarantee.mu: unknown key; known are type, epsilon"),
        ("{type: ex_post, epsilon: 3.0}", "{type: approx_dp, epsilon: 1.0, delta: n^1.1}", "delta"),
        ("{type: ex_post, epsilon: 3.0}", "{type: approx_dp, epsilon: 1.0, delta: 1.0}", "delta"),
        ("private_inference", "magic", "mechanism"),
        ("private_inference", "private_inferense", "not 'private_inferense'; did you mean 'private_inference'?"),
        ("batch_size: 63", "batchsize: 63", "parameters.batchsize: unknown key; known are "),
        ("batch_size: 63", "batchsize: 63", "; did you mean 'batch_size'? (and 1 more)"),
        (
            "{source: builtin, name: keys}",
            "{source: file, path: a.csv, jion: turns}",
            "data.jion: unknown key; known are separator, encoding, header, source, path, text, label, id, user, join",
        ),
        (
            "source: builtin",
            "source: file_",
            "data.source: must be one of builtin, file, dataset, not 'file_'; did you",
        ),
        ("source: builtin, ", "", "data.source: is missing"),
        ("type: ex_post, ", "", "guarantee.type: is missing"),
        ("type: ex_post", "type: pure", "not 'pure'; did you mean 'pure_dp'?"),
        ("epsilon: 3.0", "epsilon: three", "guarantee.epsilon: input should be a valid number, not 'three'"),
        (
            "aggregate: median",
            "aggregate: means",
            "input should be 'median', 'mean' or 'none', not 'means'; did you mean",
        ),
        ("GOOD", "", ""),
    ],
)
def test_a_bad_claim_is_one_clear_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = "- just\n- a list\n" if old == "GOOD" else GOOD.replace(old, new)
    assert text != GOOD
    with pytest.raises(InputError) as caught:
        read_claim(write(tmp_path, text))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(tmp_path / "claim.yaml"))
    assert says in message


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a: [1, 2", b"", b"a: !!python/object/apply:os.getcwd []"])
def test_what_is_not_a_claim_at_all(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "claim.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError):
        read_claim(path)
    with pytest.raises(InputError, match=r"missing\.yaml"):
        read_claim(tmp_path / "missing.yaml")


def test_paths_are_relative_to_the_claim_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    text = GOOD.replace("{source: builtin, name: keys}", "{source: file, path: notes.jsonl}") + "model: model\n"
    claim = read_claim(write(tmp_path, text))
    assert claim.data.path == tmp_path / "notes.jsonl"  # type: ignore[union-attr]
    assert claim.model == str(tmp_path / "model")
    assert str(tmp_path) not in json.dumps(claim.described()), "a report tells no path of a machine"


def test_a_claim_without_guarantee_configures_a_run(tmp_path: Path) -> None:
    claim = read_claim(write(tmp_path, GOOD.replace("guarantee: {type: ex_post, epsilon: 3.0}", "")))
    with pytest.raises(InputError, match="needs a `guarantee`"):
        claim.claimed()


def test_the_schema_is_a_json_schema_and_refuses_unknown_keys() -> None:
    schema = json.loads(json.dumps(json_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    bad = yaml.safe_load(GOOD) | {"colour": "red"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(bad, schema)


@pytest.mark.parametrize(
    ("period", "kind"), [("2025", "a number"), ("1.5", "a number"), ("2025-03-04", "a date"), ("yes", "true or false")]
)
def test_text_that_yaml_reads_as_something_else(period: str, kind: str, tmp_path: Path) -> None:
    says = f"period: must be text, and YAML reads this as {kind}; put it between quotes"
    with pytest.raises(InputError, match=re.escape(says)):
        read_claim(write(tmp_path, f"{GOOD}period: {period}\n"))
    assert read_claim(write(tmp_path, f'{GOOD}period: "{period}"\n')).period == period
