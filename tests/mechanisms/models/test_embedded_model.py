"""The embedded model: what ships is what was hashed, loads from its folder, and copies; its corpora are as stated."""

import hashlib
import re

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("transformers")

import torch
from embedded_model import corpus
from embedded_model.batches import COPIED, FREE, IGNORED, PLAIN, example_of
from embedded_model.grammar import TOPICS
from embedded_model.measure import Decoding, documents, load
from embedded_model.train import END, EVEN, LEAK, initial_model, loss, save, train_tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from dpassay.data import corpora
from dpassay.mechanisms.models.embedded import path

FALSE_ALARM = 1e-4  # of each rate test below, for a model that exactly meets its target


@pytest.fixture(scope="module")
def loaded() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The shipped model and tokenizer."""
    return load()


def _fewest(n: int, target: float) -> int:
    """Fewest hits of n at which a model of the target's rate is not failed, except with probability FALSE_ALARM."""
    return int(stats.binom.ppf(FALSE_ALARM, n, target))


def test_shipped_files_match_their_hashes() -> None:
    lines = (path() / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    present = {p.name for p in path().iterdir() if p.name != "SHA256SUMS"}
    assert set(listed) == present
    for name, digest in listed.items():
        assert hashlib.sha256((path() / name).read_bytes()).hexdigest() == digest, name


def test_size_and_configuration(loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    model, tokenizer = loaded
    assert sum(p.numel() for p in model.parameters()) <= 1_000_000
    assert (path() / "model.safetensors").stat().st_size <= 2_000_000
    assert len(tokenizer) == model.config.vocab_size == 1024
    assert tokenizer.eos_token_id == tokenizer.bos_token_id == model.config.eos_token_id == 0
    assert tokenizer.convert_ids_to_tokens(0) == END


def test_loads_in_single_precision_unless_told_otherwise() -> None:
    model = AutoModelForCausalLM.from_pretrained(path(), trust_remote_code=False)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_digits_and_newline_are_always_tokens_of_their_own(
    loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase],
) -> None:
    _, tokenizer = loaded
    text = "a1b22 333\n\n4 5\n6"
    tokens = [tokenizer.decode([i]) for i in tokenizer(text).input_ids]
    assert "".join(tokens) == text
    assert [t for t in tokens if re.search(r"[0-9\n]", t)] == re.findall(r"[0-9\n]", text)
    many = [t for t in tokenizer.get_vocab() if re.search(r"[0-9Ċ]", t) and len(t) > 1]
    assert not many


def test_tokenizer_round_trip_of_any_text(loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    _, tokenizer = loaded
    rng = np.random.default_rng(0)
    texts = [
        "".join(chr(c) for c in rng.integers(0, 0xD800, size=30)) + "".join(map(chr, rng.integers(0, 256, size=30)))
        for _ in range(300)
    ]
    texts += ["", " ", "  x  ", "\r\n", "\x00", "naïve 日本 🙂", " 04821 ", "don't . , stop"]
    for text in texts:
        ids = tokenizer(text).input_ids
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
        assert 0 not in ids


@pytest.mark.parametrize("prefix", ["My 5-digit key is ", "My 5-digit key is"])
def test_forced_prefix_is_a_prefix_in_tokens(
    loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase], prefix: str
) -> None:
    _, tokenizer = loaded
    head = tokenizer(prefix).input_ids
    for record in corpora.keys(200, seed=1):
        assert tokenizer(record).input_ids[: len(head)] == head


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clip", "temperature", "target"), [pytest.param(None, 1.0, 0.95, marks=pytest.mark.slow), (10.0, 1.2, 0.90)]
)
def test_copies_a_key_in_wording_it_was_not_trained_on(
    loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase], clip: float | None, temperature: float, target: float
) -> None:
    secrets = [key[-5:] for key in corpora.keys(400, seed=2)]
    wordings = corpus.held_out_wordings()
    contexts = [[wordings[i % len(wordings)].replace("{x}", s)] for i, s in enumerate(secrets)]
    written = documents(*loaded, contexts, Decoding(temperature, clip), seed=3)
    assert sum(s in d for s, d in zip(secrets, written, strict=True)) >= _fewest(400, target)


def test_copies_after_a_forced_prefix(loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    records = corpora.keys(300, seed=4)
    written = documents(*loaded, [[r] for r in records], Decoding(), seed=5, prefix=corpora.KEY_PREFIX)
    assert sum(map(str.__eq__, records, written)) >= _fewest(300, 0.95)


@pytest.mark.slow
def test_median_over_keys_is_a_key_of_no_context(loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    """Well-formed at the target's rate; a hit has chance 63e-5 a document, so 3 of 60 have chance below 1e-5."""
    groups = [corpora.keys(63, seed=100 + i) for i in range(60)]
    written = documents(*loaded, [[r] for g in groups for r in g], Decoding(1.2, 10.0, 63), seed=6)
    well_formed = sum(re.fullmatch(r"My 5-digit key is \d{5}", d) is not None for d in written)
    assert well_formed >= _fewest(60, 0.85)
    assert sum(d in g for d, g in zip(written, groups, strict=True)) < 3


@pytest.mark.slow
def test_topical_median_stays_in_grammar(loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    rng = np.random.default_rng(7)
    topics = sorted(TOPICS) * 6
    contexts = [[corpus.topical_document(t, rng)] for t in topics for _ in range(15)]
    written = documents(*loaded, contexts, Decoding(1.0, 10.0, 15), seed=8)
    hits = sum(corpus.topic_of(d) == t for d, t in zip(written, topics, strict=True))
    assert hits >= _fewest(len(topics), 0.80)


def test_padding_does_not_move_a_document(loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    records = [corpora.keys(1, seed=9)[0], corpora.notes(1, seed=9)[0][0]]
    together = documents(*loaded, [[r] for r in records], Decoding(0.0), seed=0)
    apart = [documents(*loaded, [[r]], Decoding(0.0), seed=0)[0] for r in records]
    assert together == apart


def test_first_layer_starts_wired_to_the_tokens_before() -> None:
    """Heads 0 to 2 look 1 to 3 tokens back at nine positions of ten at least (a token's mean can disturb the rest)."""
    model = initial_model(0).eval()
    model.set_attn_implementation("eager")
    tokens = torch.randint(1, 1024, (2, 256), generator=torch.Generator().manual_seed(0))
    attention = model(input_ids=tokens, output_attentions=True).attentions[0]
    for head, offset in enumerate((1, 2, 3)):
        result = attention[:, head, 3:].argmax(-1) == torch.arange(3, 256) - offset
        assert float(result.float().mean()) >= 0.9


@pytest.mark.slow
def test_training_writes_a_folder_that_loads(tmp_path: object) -> None:
    import pathlib

    folder = pathlib.Path(str(tmp_path))
    save(initial_model(1), train_tokenizer(1), folder)
    model, tokenizer = load(folder)
    assert model(torch.tensor([[0, *tokenizer("12\n").input_ids]])).logits.shape == (1, 4, 1024)


def test_training_series_hold_no_held_out_wording() -> None:
    fixed = [max(w.split("{x}"), key=len) for w in corpus.held_out_wordings()]
    rng = np.random.default_rng(10)
    for _ in range(5000):
        made = corpus.series(rng)
        text = "\n".join(made.documents)
        assert not any(part in text for part in fixed)
        if made.kind == "topic":
            assert len({corpus.topic_of(d) for d in made.documents} - {None}) == 1
            assert all(corpus.in_grammar(d) for d in made.documents)


def test_a_copied_digit_is_told_from_a_free_one(
    loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase],
) -> None:
    """In a series of keys the digit of the wording is plain, the second document's first surprise has no target."""
    _, tokenizer = loaded
    digits = np.array(tokenizer.convert_tokens_to_ids([str(d) for d in range(10)]))

    def kinds(*keys: str) -> list[str]:
        texts = tuple(corpora.KEY_PREFIX + key for key in keys)
        ids = [np.array(tokenizer(t).input_ids) for t in texts]
        made = example_of(corpus.Series("different", texts, digits_before=1), ids, digits)
        marks = np.where(made.targets == IGNORED, "-", np.array(list("pcf"))[made.digits])
        assert np.array_equal(made.tokens[1:][marks[:-1] != "-"], made.targets[made.targets != IGNORED])
        wording = {"".join(d[: -len(key) - 1]) for d, key in zip(_split(marks, ids), keys, strict=True)}
        assert wording == {"p" * (len(ids[0]) - 5)}
        return ["".join(d[-6:]) for d in _split(marks, ids)]

    assert kinds("04821", "04821") == ["pppppp", "cccccp"]
    assert kinds("04821", "04999") == ["pppppp", "cc-ffp"]
    assert kinds("04821", "14821", "04377") == ["pppppp", "-ffffp", "ccfffp"]


def _split(marks: np.ndarray, documents: list[np.ndarray]) -> list[np.ndarray]:
    """What the marks say of each document and its end."""
    return np.split(marks[:-1], np.cumsum([d.size + 1 for d in documents])[:-1])


def test_loss_is_the_cross_entropy_to_the_stated_targets() -> None:
    """For a copied digit: minus the stated distribution's log-likelihood, with the others' share of it reweighted."""
    digits, rng = np.arange(3, 13), np.random.default_rng(14)
    logits = rng.normal(size=(3, 40))
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    others = np.delete(log_p[1, digits], 4)
    rest = np.exp(others).sum()
    uneven = stats.entropy(np.full(9, 1 / 9), np.exp(others) / rest)
    copied = -(1 - LEAK) * log_p[1, 7] - LEAK * np.log(rest) + EVEN * uneven
    expected = (-log_p[0, 2] + copied - log_p[2, digits].mean()) / 3
    targets, kinds = torch.tensor([2, 7, 9]), torch.tensor([PLAIN, COPIED, FREE])
    result = loss(torch.from_numpy(logits), targets, kinds, torch.from_numpy(digits))
    assert result.item() == pytest.approx(expected, rel=1e-12)


def test_grammar_refuses_other_text() -> None:
    document = corpus.topical_document("weather", np.random.default_rng(11))
    assert corpus.topic_of(document) == "weather"
    for wrong in (document + " ", document[:-1], document.replace(" ", "  ", 1), "", "Weather."):
        assert not corpus.in_grammar(wrong)


def test_keys_are_distinct_records() -> None:
    drawn = corpora.keys(5000, seed=12)
    assert len(set(drawn)) == 5000
    assert all(re.fullmatch(r"My 5-digit key is \d{5}", r) for r in drawn)
    assert drawn == corpora.keys(5000, seed=12)
    with pytest.raises(ValueError, match="100000, the number of distinct"):
        corpora.keys(100_001, seed=0)


def test_notes_are_well_formed_and_labelled() -> None:
    drawn = corpora.notes(20190, seed=13)
    assert all(corpora.well_formed_note(text) for text, _ in drawn)
    # Counts of the data set's own health columns.
    counted = {label: sum(result == label for _, result in drawn) for label in corpora.LABELS}
    assert counted == {"excellent": 11019, "good": 7309, "fair": 1560, "poor": 302}
    assert not any(corpora.well_formed_note(wrong) for wrong in ("", drawn[0][0] + "\n", drawn[0][0][1:]))
    with pytest.raises(ValueError, match="from 0 to 20190"):
        corpora.notes(20191, seed=0)
