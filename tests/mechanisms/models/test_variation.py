"""Writers that are local language models: which law they sample from, what they are shown, how they resume."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpassay.data import corpora
from dpassay.mechanisms.embedding.embedder import HashedNgrams, all_embedded
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.evolution.loop import EvolutionSettings, SyntheticText, evolve
from dpassay.mechanisms.models import sampling
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.writers import ModelWriter, clean, example_of, prompts_of

SEEDS = list(range(100, 112))


@pytest.fixture(scope="module")
def builtin() -> LanguageModel:
    return LanguageModel.load("builtin", device="cpu")


@pytest.fixture(scope="module")
def chatting(make_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = make_model(tmp_path_factory.mktemp("models") / "gemma", "gemma2", chat="gemma", positions=512)
    return LanguageModel.load(folder, device="cpu")


def one_by_one(writer: ModelWriter, context: list[int], seed: int) -> tuple[list[int], bool]:
    """A text sampled token by token, alone and without a cache, with NumPy."""
    model, tokens = writer.model, list[int]()
    for uniform in np.random.default_rng(seed).random(writer.max_tokens):
        logits = model.plain_logits([*context, *tokens]).numpy().astype(np.float64) / writer.temperature
        probabilities = np.exp(logits - logits.max())
        probabilities /= probabilities.sum()
        if writer.top_p < 1:
            order = np.argsort(-probabilities, kind="stable")
            before = np.concatenate([[0], np.cumsum(probabilities[order])[:-1]])
            probabilities[order[before >= writer.top_p]] = 0
        cumulative = np.cumsum(probabilities)
        token = int((cumulative <= uniform * cumulative[-1]).sum())
        if token in model.end_of_text_ids:
            return tokens, True
        tokens.append(token)
    return tokens, False


@pytest.mark.grid
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_p": 0.8}, {"temperature": 1.6}])
def test_texts_are_those_of_each_row_alone(builtin: LanguageModel, settings: dict[str, Any]) -> None:
    # Logits differ by less than 3e-5 (`row_difference`), and so many tokens come out differently: of 5 texts of at most
    # 30 tokens one, with probability below 5e-3; the seeds are fixed.
    writer = ModelWriter(model=builtin, max_tokens=30, **settings)
    parents = [*corpora.keys(2, 3), "Soup with beans and a lot of salt.", "The key of the door is 4411."]
    end, seeds = builtin.end_of_text_ids[0], range(len(parents))
    expected = []
    for parent, seed in zip(parents, seeds, strict=True):
        tokens, ended = one_by_one(writer, [end, *builtin.encode(parent), end], seed)
        expected.append(builtin.decode(tokens) if ended else "")
    assert list(writer.vary(parents, None, seeds)) == expected
    assert len(set(expected)) > 2
    tokens, ended = one_by_one(writer, [end], 7)
    assert list(writer.random("any label", [7])) == [builtin.decode(tokens) if ended else ""]


@pytest.mark.grid
def test_any_architecture_writes_the_texts_of_each_row_alone(any_model: LanguageModel) -> None:
    writer = ModelWriter(model=any_model, max_tokens=12, temperature=1.5)
    texts = ["the doctor said", "My key is 04821, and the patient came", "a"]
    contexts = [
        [*any_model.beginning_ids, *any_model.encode(f"```\nkind\n{text}\n```\n\n```\nkind\n")] for text in texts
    ]
    expected = []
    for context, seed in zip(contexts, SEEDS, strict=False):
        tokens, _ = one_by_one(writer, context, seed)
        expected.append(any_model.decode(tokens).partition("```")[0])
    assert list(writer.vary(texts, "kind", SEEDS[: len(texts)])) == expected


def test_a_text_does_not_depend_on_the_texts_beside_it(builtin: LanguageModel) -> None:
    # As above: 12 texts of about 20 tokens, each written three times; the seeds are fixed.
    writer = ModelWriter(model=builtin)
    parents = ["Soup with beans and a lot of salt.", "The key of the door is 4411.", corpora.notes(1, 3)[0][0]] * 4
    together = list(writer.vary(parents, None, range(12)))
    assert list(replace(writer, rows=5).vary(parents, None, range(12))) == together
    assert list(writer.vary(parents[::-1], None, range(11, -1, -1))) == together[::-1]
    assert len(set(together)) > 6


def test_the_law_of_a_token_is_the_softmax() -> None:
    generator = np.random.default_rng(0)
    logits = torch.from_numpy(generator.normal(scale=2, size=40).astype(np.float32))
    logits[[3, 39]] = -torch.inf
    count = 20_000
    uniform = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    for temperature, top_p, top_k in (
        (1.0, 1.0, 0),
        (0.5, 1.0, 0),
        (1.0, 0.6, 0),
        (2.0, 0.9, 0),
        (1.0, 1.0, 5),
        (2.0, 0.7, 9),
    ):
        drawn = sampling.drawn_tokens(logits.expand(count, -1), uniform, temperature, top_p, top_k).numpy()
        law = np.exp(logits.numpy().astype(np.float64) / temperature)
        law /= law.sum()
        order = np.argsort(-law)[: top_k or None]
        law /= law[order].sum()
        kept = order[: 1 + int((np.cumsum(law[order]) < top_p).sum())] if top_p < 1 else order
        expected = np.zeros(40)
        expected[kept] = law[kept] / law[kept].sum()
        # An interval of length p holds p·count of the evenly spaced points, give or take one.
        assert np.abs(np.bincount(drawn, minlength=40) - expected * count).max() <= 1
    assert int(sampling.drawn_tokens(logits[None], uniform[:1], 0, 1.0)) == int(logits.argmax())
    last = torch.tensor([1.0], dtype=torch.float64)  # what rounding may make of a number just below 1
    assert int(sampling.drawn_tokens(logits[None], last, 1.0, 1.0)) == 38


@pytest.mark.slow
def test_variations_of_notes_are_nearer_to_their_parents_than_notes_to_each_other(builtin: LanguageModel) -> None:
    notes = [text for text, _ in corpora.notes(120, 5)]
    variations = list(ModelWriter(model=builtin).vary(notes, None, range(120)))
    assert np.mean([corpora.well_formed_note(text) for text in variations]) > 0.9
    assert np.mean([text == note for text, note in zip(variations, notes, strict=True)]) < 0.2
    vectors, parents = (all_embedded(HashedNgrams(), texts) for texts in (variations, notes))
    gains = (vectors * parents).sum(axis=1) - (np.roll(parents, 1, axis=0) * parents).sum(axis=1)
    # 0.03 and more; a gain of none would pass five standard errors with probability below 1e-6.
    assert gains.mean() > 5 * gains.std(ddof=1) / np.sqrt(len(gains))


def test_a_random_text_follows_a_public_example_of_its_label(builtin: LanguageModel) -> None:
    keys, notes = corpora.keys(4, 1), [text for text, _ in corpora.notes(4, 1)]
    writer = ModelWriter(model=builtin, examples={"key": keys, "note": notes})
    written = {label: list(writer.random(label, SEEDS)) for label in ("key", "note")}
    assert np.mean([corpora.well_formed_note(text) for text in written["note"]]) > 0.8
    assert not any(corpora.well_formed_note(text) for text in written["key"])
    chosen = {example_of(writer.examples, "key", seed) for seed in range(100)}
    assert chosen == set(keys)  # missed by chance with probability 4·(3/4)¹⁰⁰ < 1e-11
    assert example_of(writer.examples, "none", 0) == ""


def test_an_evolution_by_the_embedded_model_goes_on_where_it_was_cut(builtin: LanguageModel, tmp_path: Path) -> None:
    # Other batches than in the whole run; as above, rounding moves a text with a probability of about 1e-2.
    writer, embedder = ModelWriter(model=builtin), HashedNgrams()
    settings = EvolutionSettings(rounds=2, synthetic=4, variations=2, labels=("a", "b"))

    def select(number: int, vectors: Mapping[str | None, Any]) -> dict[str | None, Any]:
        return {label: np.argsort(-rows[:, 0], kind="stable")[:4] for label, rows in vectors.items()}

    def run(path: Path) -> tuple[SyntheticText, ...]:
        with Journal(path, settings.about(writer, embedder)) as journal:
            return evolve(settings, writer, embedder, select, journal)

    expected = run(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(content[: len(content) // 3])
    assert run(tmp_path / "cut") == expected
    assert (tmp_path / "cut").read_bytes() == content


def test_what_did_not_end_by_itself_is_no_text_of_the_embedded_model(builtin: LanguageModel) -> None:
    note = corpora.notes(1, 3)[0][0]
    cut = ModelWriter(model=builtin, max_tokens=8)
    assert list(cut.vary([note], None, [0])) == [""]
    (text,) = replace(cut, whole=False).vary([note], None, [0])
    assert len(builtin.encode(text)) == 8


def test_a_chat_model_is_asked_in_its_own_template(chatting: LanguageModel) -> None:
    writer = ModelWriter(model=chatting, max_tokens=20)
    shown = chatting.decode(writer.context(writer.asked.variation, "poor", "text", "One visit."))
    assert shown.startswith("user\nRewrite the following text of the kind poor. ")
    assert shown.endswith("\n\nOne visit.\nmodel\n")
    ids = writer.context(writer.asked.random, None, "example", "")
    assert chatting.decode(ids) == "user\nWrite one text. Answer with the text alone.\nmodel\n"
    assert ids.count(chatting.beginning_ids[0]) == 1
    assert chatting.decode(writer.context(writer.asked.random, None, "example", "Two.")) == (
        "user\nWrite one text. It should look like this one, but say something else:\n\nTwo.\n\n"
        "Answer with the text alone.\nmodel\n"
    )
    plain = replace(writer, chat=False)
    assert chatting.decode(plain.context(plain.asked.variation, None, "text", "One.")) == "```\nOne.\n```\n\n```\n"
    assert len(list(writer.vary(["One visit."], "poor", [0]))) == 1


def test_prompts_may_be_jinja_or_format(tiny: LanguageModel) -> None:
    for random, variation in (
        ("new {label} like {example}:", "{label}: {text} >"),
        ("new {{ label }} like {{ example }}:", "{{ label }}: {{ text }} >"),
    ):
        writer = ModelWriter(model=tiny, max_tokens=4, random_prompt=random, variation_prompt=variation)
        assert tiny.decode(writer.context(writer.asked.random, "a", "example", "b")) == "new a like b:"
        assert tiny.decode(writer.context(writer.asked.variation, "a", "text", "b")) == "a: b >"


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("length", [1, 2_000, 200_000])
def test_what_is_shown_is_cut_to_what_fits(chatting: LanguageModel, chat: bool, length: int) -> None:
    writer = ModelWriter(model=chatting, max_tokens=100, chat=chat)
    ids = writer.context(writer.asked.variation, "poor", "text", "9" * length)
    assert len(ids) <= chatting.context_length - 100
    assert ("9" * min(length, 50)) in chatting.decode(ids)
    assert chatting.decode(ids).endswith("model\n" if chat else "```\npoor\n")


def test_a_long_candidate_fits_the_embedded_model(builtin: LanguageModel) -> None:
    writer = ModelWriter(model=builtin, whole=False)
    assert len(writer.context("", None, "text", "one two " * 10_000)) == builtin.context_length - writer.max_tokens
    assert len(list(writer.vary(["one two " * 10_000, "short"], None, [0, 1]))) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"top_p": 1.1}, "top_p must be between 0 and 1"),
        ({"max_tokens": 97}, "max_tokens must be at most 96"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"chat": True}, "has no chat template"),
        ({"variation_prompt": "nothing"}, "does not show the candidate"),
        ({"variation_prompt": "{text} {other}"}, "does not render with label and text"),
        ({"variation_prompt": "{{ text }} {{ other }}"}, "does not render with label and text"),
        ({"random_prompt": "{text}"}, "does not render with label and example"),
        ({"random_prompt": "{% if %}"}, "does not render with label and example"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(tiny: LanguageModel, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        ModelWriter(model=tiny, **{"max_tokens": 8, **settings})
    assert "\n" not in str(raised.value)


def test_a_prompt_that_never_fits_is_refused_before_a_text_is_written(tiny: LanguageModel) -> None:
    writer = ModelWriter(model=tiny, max_tokens=8, variation_prompt="0 " * 200 + "{text}")
    with pytest.raises(ValueError, match="do not fit into the model's 128 positions"):
        writer.random(None, [0])


def test_a_fingerprint_tells_writers_of_other_texts_apart(tiny: LanguageModel) -> None:
    writer = ModelWriter(model=tiny, max_tokens=8)
    others: list[dict[str, Any]] = [
        {"examples": {None: ["a"]}},
        {"examples": {"a": ["a"]}},
        {"random_prompt": "a"},
        {"variation_prompt": "{text}"},
        {"stop": "a"},
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"max_tokens": 9},
        {"whole": True},
    ]
    prints = {writer.fingerprint, *(replace(writer, **other).fingerprint for other in others)}
    assert len(prints) == 1 + len(others)
    assert replace(writer, rows=3, chat=False, whole=False).fingerprint == writer.fingerprint


def test_a_text_of_ours_ends_where_its_fence_does() -> None:
    assert prompts_of(None, None, None, chat=False).stop == "```"
    assert prompts_of(None, "{text}", None, chat=False).stop is None
    assert prompts_of(None, "{text}", "###", chat=False).stop == "###"
    assert prompts_of(None, None, None, chat=True).stop is None


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  a\tb \n", "a\tb"),
        ("a\r\nb\rc\x0bd\u2028e\x85f", "a\nb\nc\nd\ne\nf"),
        ("a\x00b\x1b[31mc\x7f\ud800d\udfff", "ab[31mcd"),
        ("\ud83d\ude00 é 中 \U0001f600", "é 中 \U0001f600"),
        ("\x00\u2029 ", ""),
    ],
)
def test_cleaned_text_can_be_written_anywhere(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    cleaned.encode("utf-8")
    assert clean(cleaned) == cleaned
