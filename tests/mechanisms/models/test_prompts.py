"""Prompts by name: the published one for pre-trained models, and an instruction through a tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from little_inference import RECORDS, mechanism

from dpassay.mechanisms.models import chat_templates
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.prompts import TEMPLATES

GEMMA = (
    "<bos><start_of_turn>user\nGenerate an example like this{label}:{examples}<end_of_turn>\n"
    "<start_of_turn>model\n{prefix}"
)
LLAMA = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nGenerate an example like this{label}:{examples}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{prefix}"
)
SHAPES = {"gemma": ("gemma2", GEMMA, "<end_of_turn>"), "llama3": ("llama", LLAMA, "<|eot_id|>")}


@pytest.fixture(scope="module", params=SHAPES)
def chatting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, make_model: Callable[..., Path]
) -> tuple[LanguageModel, str, int]:
    """A model with a chat template, what a prompt is expected to be, and the end-of-turn token."""
    architecture, expected, end = SHAPES[request.param]
    folder = make_model(
        tmp_path_factory.mktemp("models") / request.param, architecture, chat=request.param, positions=512
    )
    model = LanguageModel.load(folder, device="cpu")
    return model, expected, model.tokenizer.convert_tokens_to_ids(end)


def whole_text(model: LanguageModel, tokens: list[int]) -> str:
    return str(model.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))


@pytest.mark.parametrize(
    ("texts", "label", "prefix"), [(["one", "two"], "World", ""), (["one"], None, "My "), ([], "World", "")]
)
def test_an_instruction_goes_through_the_chat_template(
    chatting: tuple[LanguageModel, str, int], texts: list[str], label: str | None, prefix: str
) -> None:
    model, expected, _ = chatting
    prompt = mechanism(template="instruction", prefix=prefix).prompt(model, label)
    tokens = prompt.context(texts, 20)
    label_shown = f", with the label {label}" if label else ""
    shown = "".join(f"\n\n{text}" for text in texts)
    assert whole_text(model, tokens) == expected.format(label=label_shown, examples=shown, prefix=prefix)
    assert tokens.count(model.beginning_ids[0]) == 1
    turn = [{"role": "user", "content": f"Generate an example like this{label_shown}:{shown}"}]
    own = model.tokenizer.apply_chat_template(
        turn, add_generation_prompt=True, return_dict=False, date_string="26 Jul 2024"
    )
    assert tokens == [*own, *model.encode(prefix)]


def test_the_end_of_a_turn_ends_a_document(chatting: tuple[LanguageModel, str, int]) -> None:
    model, _, end = chatting
    assert (model.end_of_text_ids, model.end_of_turn_ids) == ((0,), (end,))
    assert not mechanism(template="pretrained").end_rule(model).ended([5, end])
    rule = mechanism(template="instruction").end_rule(model)
    assert rule.stop is None
    tokens = [*model.encode("some text"), end]
    assert rule.ended(tokens)
    assert not rule.ended(tokens[:-1])
    assert rule.text(tokens) == "some text"
    assert rule.split([*tokens, 5, 6, end, 7]) == [tuple(tokens), (5, 6, end), (7,)]


def test_the_end_of_a_turn_is_also_that_of_the_generation_config(
    make_model: Callable[..., Path], tmp_path: Path
) -> None:
    """A list, as Gemma and Llama have it, of which one is beyond the tokens that the tokenizer knows."""
    import transformers

    folder = make_model(tmp_path, "llama")
    transformers.GenerationConfig(eos_token_id=[0, 7, 100_000]).save_pretrained(folder)
    assert LanguageModel.load(folder, device="cpu").end_of_text_ids == (0, 7)


def test_long_records_are_cut_each_by_itself_and_the_turn_stays_whole(
    chatting: tuple[LanguageModel, str, int],
) -> None:
    model, _, end = chatting
    chosen = mechanism(template="instruction", records_per_context=2, prefix="My ", context_tokens=256)
    prompt = chosen.prompt(model, "a")
    share = prompt.record_tokens
    short, long = "tiny", "x y z " * 200
    both = prompt.context([short, long], share)
    assert len(both) <= 256
    assert prompt.context([short, long + "more"], share) == both
    frame = whole_text(model, prompt.context([], share)).rpartition(":")[2]
    for texts in ([long, long], [long] * 9, ["é" * 300, "ü" * 301]):
        tokens = prompt.context(texts, share)
        assert len(tokens) <= 256
        assert whole_text(model, tokens).endswith(frame)
        assert tokens.count(end) == prompt.context([], share).count(end)
    # Even where a share is far too large, what follows the examples is not cut off.
    tokens = prompt.context([long, long], 400)
    assert len(tokens) == 256
    assert whole_text(model, tokens).endswith(frame)


def test_an_instruction_needs_a_chat_template(tiny: LanguageModel) -> None:
    with pytest.raises(ValueError, match="needs a tokenizer with a chat template") as error:
        mechanism(template="instruction").check(RECORDS, tiny)
    assert "\n" not in str(error.value)


def test_a_chat_template_that_fails_tells_nothing_of_the_text(make_model: Callable[..., Path], tmp_path: Path) -> None:
    tokenizer = LanguageModel.load(make_model(tmp_path, "gpt2", chat="gemma"), device="cpu").tokenizer
    for broken in ("{{ raise_exception(messages[0]['content']) }}", "{{ messages[0]['content'] + 1 }}", "{% for %}"):
        tokenizer.chat_template = broken
        with pytest.raises(ValueError, match="cannot be rendered") as error:
            chat_templates.chat(tokenizer, "secret")
        assert "secret" not in str(error.value)
        assert chat_templates.end_of_turn_ids(tokenizer) == []


def test_a_chat_template_is_sandboxed_and_belongs_to_the_fingerprint(
    make_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_model(tmp_path, "gpt2", chat="gemma")
    before = LanguageModel.load(folder, device="cpu")
    (folder / "chat_template.jinja").write_text("{{ messages.__class__.__mro__[1].__subclasses__() }}")
    after = LanguageModel.load(folder, device="cpu")
    assert after.fingerprint != before.fingerprint
    with pytest.raises(ValueError, match="cannot be rendered"):
        after.chat("a text")


def test_the_published_template_has_a_name(tiny: LanguageModel) -> None:
    named, default = mechanism(template="pretrained"), mechanism()
    assert named.prompt(tiny, "a").context(["one"], 9) == default.prompt(tiny, "a").context(["one"], 9)
    assert named.end_rule(tiny).stop == default.end_rule(tiny).stop == "```"
    text = mechanism(template=TEMPLATES["pretrained"])
    assert text.prompt(tiny, "a").context(["one"], 9) == default.prompt(tiny, "a").context(["one"], 9)
    assert mechanism(template="instruction").end_rule(tiny).stop is None
    assert mechanism(template="instruction", stop="END").end_rule(tiny).stop == "END"
    with pytest.raises(ValueError, match="or be pretrained or instruction"):
        mechanism(template="instructions")
