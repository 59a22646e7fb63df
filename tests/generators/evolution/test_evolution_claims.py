"""Claims about the evolutions: what is read, what is refused, and in which words; what a report shows of them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from dpassay.accounting.guarantees import SecretProtection
from dpassay.base.errors import InputError
from dpassay.generators.ledger_run import described
from dpassay.generators.registry import json_schema, read_claim
from dpassay.mechanisms.secret_evolution.detection import ListedSecrets, PatternSecrets

SECRETS = r"""
name: secrets
data: {source: builtin, name: notes-with-secrets}
mechanism: secret_evolution
parameters:
  secrets: [{list: secrets.txt, p: 0.0001, r: 0.01}, {pattern: '\b\d{5}\b'}]
  p: 1.0e-5
  r: 0.001
  rounds: 5
  synthetic: 20
  variations: 2
  clusters: 10
public: {records: 400}
guarantee: {type: secret_protection, p: 1.0e-5, r: 0.001}
"""

AUG_PE = """
name: votes
data: {source: builtin, name: notes}
mechanism: aug_pe
parameters: {noise_multiplier: 3.0, rounds: 5, synthetic: 20, variations: 2}
public: {records: 400}
guarantee: {type: approx_dp, epsilon: 6.0, delta: 1.0e-5}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "claim.yaml"
    path.write_text(text)
    return path


def test_inclusion_is_recorded_where_it_is_not_that_of_earlier_versions(tmp_path: Path) -> None:
    """A run of coins begins as it always did; one of weights says so, and what is assumed of them."""
    coins = read_claim(write(tmp_path, SECRETS))
    assert "inclusion" not in described(coins)["parameters"]  # type: ignore[operator]
    assert described(
        read_claim(write(tmp_path, SECRETS.replace("  p: 1", "  inclusion: coins\n  p: 1", 1)))
    ) == described(coins)
    weights = read_claim(write(tmp_path, SECRETS.replace("  p: 1", "  inclusion: weights\n  p: 1", 1)))
    assert described(weights)["parameters"]["inclusion"] == "weights"  # type: ignore[index,call-overload]
    sentence = "Each private record counts in every release with a weight that follows from where secrets occur."
    assert sentence in weights.assumptions()
    assert sentence not in coins.assumptions()
    with pytest.raises(InputError, match=r"parameters\.inclusion: .*'coins' or 'weights'"):
        read_claim(write(tmp_path, SECRETS.replace("  p: 1", "  inclusion: dice\n  p: 1", 1)))


def test_a_claim_is_the_mechanism_it_describes(tmp_path: Path) -> None:
    claim = read_claim(write(tmp_path, SECRETS))
    mechanism = claim.generator()
    assert mechanism.secrets == (  # type: ignore[attr-defined]
        ListedSecrets(tmp_path / "secrets.txt", 0.0001, 0.01),
        PatternSecrets(r"\b\d{5}\b"),
    )
    assert (claim.unit, claim.adjacency) == ("secret", "secret")
    assert claim.claimed() == SecretProtection(1e-5, 0.001)
    jsonschema.validate(yaml.safe_load(SECRETS), json_schema())
    jsonschema.validate(yaml.safe_load(AUG_PE), json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(SECRETS.replace("list:", "lists:")), json_schema())


def test_a_report_tells_no_path_and_no_address(tmp_path: Path) -> None:
    endpoint = "rounds: 5\n  endpoint: {url: http://127.0.0.1:1/v1, model: some-model, api_key_env: SOME_KEY}"
    claim = read_claim(write(tmp_path, SECRETS.replace("rounds: 5", endpoint)))
    body = claim.described()
    assert str(tmp_path) not in json.dumps(body)
    assert body["parameters"]["secrets"][0]["list"] == "secrets.txt"
    assert body["parameters"]["endpoint"] == {"model": "some-model"}
    assert "model" not in body


WRONG_SECRETS = [
    ("p: 1.0e-5\n  r: 0.001", "p: 0.1\n  r: 0.1", "r must be above p, since no noise achieves r"),
    ("p: 0.0001, r: 0.01", "p: 0.5", "r must be above p, since no noise achieves r"),
    ("p: 0.0001, r: 0.01", "colour: red", "parameters.secrets.0.colour: unknown key; known are p, r, list"),
    ("p: 0.0001, r: 0.01", "pattern: x", "parameters.secrets.0: a source of secrets is a mapping with exactly one of"),
    (
        "{list: secrets.txt, p: 0.0001, r: 0.01}",
        "secrets.txt",
        "parameters.secrets.0: a source of secrets is a mapping",
    ),
    ("{list: secrets.txt, p: 0.0001, r: 0.01}", "{quantile: 0.5}", "parameters.secrets.0.count: is missing"),
    (r"\b\d{5}", r"\b(\d{5}", "is not a regular expression of Python's re (column"),
    (r"\b\d{5}\b", r"\d*", "matches the empty string"),
    ("records: 400", "labels: []", "public.records: is missing"),
    ("rounds: 5", "rounds: 0", "rounds must be at least 1, not 0"),
    ("rounds: 5", "rounds: true", "parameters.rounds: must be a number, not a truth value"),
    ("synthetic: 20", "sintetic: 20", "parameters.sintetic: unknown key; known are "),
    ("rounds: 5", "rounds: 5\n  writing: {heat: 1}", "parameters.writing.heat: unknown key; known are random_prompt"),
    ("rounds: 5", "rounds: 5\n  endpoint: {url: x}", "parameters.endpoint.model: is missing"),
    ("rounds: 5", "rounds: 5\n  endpoint: {url: x, model: y}", "url of the endpoint must begin with https://"),
    (
        "rounds: 5",
        "rounds: 5\n  endpoint: {url: 'https://x.org/v1', model: y}\n  writing: {chat: true}",
        "parameters.writing.chat: is for local models",
    ),
    ("type: secret_protection, p: 1.0e-5, r: 0.001", "type: pure_dp, epsilon: 1", "guarantee.type: input should be"),
    ("p: 1.0e-5, r: 0.001}", "p: 0.001, r: 0.001}", "guarantee: r must be above p"),
    ("guarantee:", "unit: record\nguarantee:", "unit: input should be 'secret', not 'record'"),
    ("guarantee:", "adjacency: add_remove\nguarantee:", "adjacency: must be secret for secret_evolution"),
    ("guarantee:", "audits: [reconstruction]\nguarantee:", "audits.0: input should be 'secret_reconstruction'"),
]

WRONG_AUG_PE = [
    ("noise_multiplier: 3.0", "noise_multiplier: -1", "noise_multiplier must be at least 0"),
    ("synthetic: 20", "synthetic: 20, secrets: []", "parameters.secrets: unknown key; known are noise_multiplier"),
    ("guarantee:", "unit: user\nguarantee:", "unit must be record for Aug-PE, not 'user'"),
    ("guarantee:", "adjacency: secret\nguarantee:", "adjacency must be add_remove or replace_one, not 'secret'"),
    ("guarantee:", "audits: [reconstruction]\nguarantee:", "audits: dpassay has no audit of aug_pe"),
    ("records: 400", "labels: []", "public.records: is missing"),
    (
        "aug_pe",
        "aug-pe",
        "mechanism: must be private_inference, secret_evolution, aug_pe, dataset_vectors, two_stage, marginals, "
        "table_evolution or declared, not",
    ),
]


@pytest.mark.parametrize(
    ("good", "old", "new", "says"),
    [(SECRETS, *case) for case in WRONG_SECRETS] + [(AUG_PE, *case) for case in WRONG_AUG_PE],
)
def test_a_bad_claim_is_one_clear_line(tmp_path: Path, good: str, old: str, new: str, says: str) -> None:
    text = good.replace(old, new)
    assert text != good
    with pytest.raises(InputError) as caught:
        read_claim(write(tmp_path, text))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(tmp_path / "claim.yaml"))
    assert says in message
