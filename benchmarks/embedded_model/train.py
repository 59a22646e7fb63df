"""Makes the embedded model from nothing: in `benchmarks`, `python -m embedded_model.train -o DIR`.

Copying does not form by itself at this size: the first layer's heads 0 to 2 start wired to the tokens 1, 2 and 3 places
back, a first phase trains nothing but copying, and only the second phase sees documents. Training is not bitwise
reproducible (sums of floats in threads), so the shipped weights carry a hash and are judged by what they do.

The default command took 1960 seconds of processor time. The shipped weights come from one such run, from nothing;
`sharpen` was applied to what it had saved in half precision, where the command now applies it before saving.

Set `OMP_WAIT_POLICY=PASSIVE` where cores are shared.
"""

import argparse
import hashlib
import json
import math
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from embedded_model import corpus
from embedded_model.batches import (
    COPIED,
    FREE,
    IGNORED,
    PLAIN,
    Batch,
    Ints,
    copy_batches,
    mixed_batches,
)

VOCABULARY = 1024
POSITIONS = 256
END = "<|endoftext|>"
COPY_STEPS, MIX_STEPS = 700, 2500
LEAK = 0.003  # probability of another digit where one is copied: above any other token in a median over keys
EVEN = 0.2  # weight of the evenness of those other digits
SHARPNESS = 1.1  # of the logits after training; see `sharpen`
_WIRED = 32  # dimensions of the token embedding left to the positions, and width of a head


def train_tokenizer(seed: int) -> Tokenizer:
    """Byte-level BPE of 1024 tokens in which a digit and a newline are always tokens of their own.

    Digits and newlines are split off before anything else, so that a text that ends before a digit is tokenized as a
    prefix of the whole: `My 5-digit key is ` begins `My 5-digit key is 04821`, with and without its last space.
    """
    rng = np.random.default_rng([seed, 0])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[0-9\n]"), "isolated"),
            pre_tokenizers.Split(Regex(r" ?\p{L}+| ?[^\s\p{L}]+|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (text for _ in range(20_000) for text in corpus.series(rng).documents)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def initial_model(seed: int) -> GPT2LMHeadModel:
    """An untrained model whose heads 0 to 2 of layer 0 look 1, 2 and 3 tokens back.

    Positions are .05 sinusoids of base 10⁴. On the first 32 dimensions, where token embeddings start at zero, the key
    is the position and the query is the position turned back by the offset, times 8, so that their product peaks there.
    """
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=POSITIONS,
        n_embd=128,
        n_layer=4,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        activation_function="gelu_pytorch_tanh",
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    width = config.n_embd
    frequency = 1e4 ** (-torch.arange(0, width, 2) / width)
    angle = torch.arange(POSITIONS)[:, None] * frequency
    with torch.no_grad():
        positions = model.transformer.wpe.weight
        positions[:, 0::2], positions[:, 1::2] = 0.05 * angle.sin(), 0.05 * angle.cos()
        # The layer norm subtracts the mean, which must not move the wired dimensions: take it out of the others.
        positions[:, _WIRED:] -= positions.sum(dim=1, keepdim=True) / (width - _WIRED)
        model.transformer.wte.weight[:, :_WIRED] = 0.0
        # Conv1D weights are (in, out); out is query, key, value, each of four heads of 32.
        attention = model.transformer.h[0].attn.c_attn.weight
        even = torch.arange(0, _WIRED, 2)
        for head, offset in enumerate((1, 2, 3)):
            query = attention[:, head * _WIRED : (head + 1) * _WIRED]
            key = attention[:, width + head * _WIRED : width + (head + 1) * _WIRED]
            query.zero_()
            key.zero_()
            key[torch.arange(_WIRED), torch.arange(_WIRED)] = 1.0
            cosine = (offset * frequency[: _WIRED // 2]).cos()
            sine = (offset * frequency[: _WIRED // 2]).sin()
            # sin(a - o) = sin a cos o - cos a sin o;  cos(a - o) = cos a cos o + sin a sin o
            query[even, even], query[even + 1, even] = 8 * cosine, -8 * sine
            query[even + 1, even + 1], query[even, even + 1] = 8 * cosine, 8 * sine
    return model


class Muon:
    """Momentum orthogonalised by Newton-Schulz iterations, for matrices, in float32.

    `torch.optim.Muon` iterates in bfloat16, which a processor without bfloat16 arithmetic emulates at a tenth of the
    speed. Matrices of one shape are iterated together.

    Source: K. Jordan, "Muon: an optimizer for hidden layers in neural networks" (2024), for the coefficients.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], learning_rate: float) -> None:
        """Takes the matrices to train; `rate` may be changed between steps."""
        shapes = sorted({tuple(p.shape) for p in parameters})
        self.groups = [[p for p in parameters if tuple(p.shape) == shape] for shape in shapes]
        self.momenta = [torch.zeros(len(g), *g[0].shape) for g in self.groups]
        self.rate = learning_rate

    @torch.no_grad()
    def step(self) -> None:
        """One update: momentum .95 (Nesterov), decay .01."""
        for group, momentum in zip(self.groups, self.momenta, strict=True):
            gradient = torch.stack([p.grad for p in group if p.grad is not None])
            momentum.lerp_(gradient, 0.05)
            update = _orthogonal(gradient.lerp(momentum, 0.95))
            rows, columns = update.shape[1:]
            for parameter, change in zip(group, update, strict=True):
                parameter.mul_(1 - self.rate * 0.01)
                parameter.add_(change, alpha=-self.rate * max(1.0, rows / columns) ** 0.5)


def _orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """The nearest orthogonal matrices, about: five quintic Newton-Schulz iterations; shape (k, m, n)."""
    tall = matrices.shape[1] > matrices.shape[2]
    x: torch.Tensor = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    result: torch.Tensor = x.mT if tall else x
    return result


def fit(
    model: GPT2LMHeadModel, digits: Ints, phases: Sequence[tuple[str, Iterator[Batch], int]], rate: float = 1.0
) -> None:
    """Trains in place: Muon for the blocks' matrices, AdamW for the rest, linear decay over the last 70% of the steps.

    Args:
        model: The model.
        digits: The digits' ids, shape (10,).
        phases: (name, batches, number of steps), in order. The rates decay within the last phase only.
        rate: Factor of the learning rates .02 (Muon) and 3e-3 (AdamW).
    """
    ids = torch.from_numpy(digits)
    matrices = [p for p in model.transformer.h.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    for position, (name, batches, steps) in enumerate(phases):
        last = position == len(phases) - 1
        muon = Muon(matrices, 0.02)
        adam = torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.0)
        began, tokens = time.monotonic(), 0
        running = math.nan
        for step in range(steps):
            batch = next(batches)
            decay = rate * (min(1.0, (steps - step) / (0.7 * steps)) if last else 1.0)
            warm = min(1.0, (step + 1) / 50)
            muon.rate, adam.param_groups[0]["lr"] = 0.02 * decay * warm, 3e-3 * decay * warm
            mean = _mean_loss(model, batch, ids)
            model.zero_grad(set_to_none=True)
            mean.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            muon.step()
            adam.step()
            tokens += batch.tokens.numel()
            running = mean.item() if math.isnan(running) else 0.95 * running + 0.05 * mean.item()
            if step % 20 == 19 or step == steps - 1:
                seconds = time.monotonic() - began
                print(
                    f"\r{name}: step {step + 1}/{steps}, loss {running:.4f}, {tokens / 1e6:.2f} M tokens, "
                    f"{seconds:.0f} s, {seconds / (step + 1) * (steps - step - 1):.0f} s left   ",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
        print(file=sys.stderr)


def _mean_loss(model: GPT2LMHeadModel, batch: Batch, digits: torch.Tensor) -> torch.Tensor:
    logits = model(
        input_ids=batch.tokens, position_ids=batch.positions, attention_mask=batch.attention, use_cache=False
    ).logits
    kept = batch.targets != IGNORED
    return loss(logits[kept], batch.targets[kept], batch.digits[kept], digits)


def loss(logits: torch.Tensor, targets: torch.Tensor, kinds: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
    """Mean loss of predictions, by the kind of the target.

    A plain target: cross-entropy. A free digit: cross-entropy to the uniform distribution over digits. A copied digit:
    cross-entropy to itself with probability 1 - `LEAK` and any other digit with `LEAK`, plus `EVEN` times the
    Kullback-Leibler divergence of the model's distribution over the nine others from the uniform one. A median over
    contexts with different keys draws from such others: each context raises its own digit only.

    Args:
        logits: Shape (n, vocabulary).
        targets: The tokens that follow, shape (n,).
        kinds: `PLAIN`, `COPIED` or `FREE`, shape (n,).
        digits: The digits' ids, shape (10,); every target that is not plain is one of them.

    Returns:
        The mean over the n predictions, in nats.
    """
    log_p = logits.log_softmax(dim=1)
    plain, copied, free = (kinds == k for k in (PLAIN, COPIED, FREE))
    own = -log_p.gather(1, targets[:, None])[:, 0]
    total = own[plain].sum() - log_p[free][:, digits].mean(dim=1).sum()
    others = log_p[copied][:, digits][targets[copied][:, None] != digits].view(-1, 9)
    any_other = others.logsumexp(dim=1)
    uneven = any_other - others.mean(dim=1) - math.log(9)
    total = total + ((1 - LEAK) * own[copied] - LEAK * any_other + EVEN * uneven).sum()
    return total / targets.numel()


def sharpen(model: GPT2LMHeadModel, factor: float) -> None:
    """Multiplies all logits by `factor`, through the last layer norm: temperature calibration after training.

    The leak to other digits and everything else that keeps training even costs some certainty of the copied token; this
    gives it back without touching which token is likelier than which.
    """
    with torch.no_grad():
        model.transformer.ln_f.weight *= factor
        model.transformer.ln_f.bias *= factor


def save(model: GPT2LMHeadModel, tokenizer: Tokenizer, folder: pathlib.Path) -> None:
    """Writes weights (float16), configuration, tokenizer and `SHA256SUMS` (in the format of `sha256sum`)."""
    folder.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(folder, safe_serialization=True)
    (folder / "model.safetensors").chmod(0o644)
    config = json.loads((folder / "config.json").read_text())
    for name in ("dtype", "torch_dtype"):  # stored in half precision, computed in single
        config[name] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "pad_token": END,
        "model_max_length": POSITIONS,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    AutoTokenizer.from_pretrained(folder)  # refuses here, not at the reader's
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name != "SHA256SUMS")
    sums = (f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files)
    (folder / "SHA256SUMS").write_text("".join(sums))


def digit_tokens(tokenizer: Tokenizer) -> Ints:
    """The ids of the ten digits, shape (10,)."""
    return np.array([tokenizer.token_to_id(str(d)) for d in range(10)])


def main() -> None:
    """Command line of the training."""
    parser = argparse.ArgumentParser(description="Train the embedded language model from nothing.")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, help="folder to write")
    parser.add_argument("--copy-steps", type=int, default=COPY_STEPS, help="steps of copying random tokens")
    parser.add_argument("--steps", type=int, default=MIX_STEPS, help="steps of 4096 tokens on documents")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=pathlib.Path, help="continue from a folder: documents only, .3 of the rates")
    arguments = parser.parse_args()
    began = time.monotonic()
    if arguments.start is not None:
        tokenizer = Tokenizer.from_file(str(arguments.start / "tokenizer.json"))
        model = GPT2LMHeadModel.from_pretrained(arguments.start, dtype=torch.float32).train()
        digits = digit_tokens(tokenizer)
        mixed = mixed_batches(np.random.default_rng([arguments.seed, 3]), tokenizer, digits, POSITIONS)
        fit(model, digits, [("mix", mixed, arguments.steps)], rate=0.3)
        save(model, tokenizer, arguments.output)
        return
    tokenizer = train_tokenizer(arguments.seed)
    digits = digit_tokens(tokenizer)
    model = initial_model(arguments.seed)
    copying = copy_batches(np.random.default_rng([arguments.seed, 1]), digits, VOCABULARY, POSITIONS)
    mixed = mixed_batches(np.random.default_rng([arguments.seed, 2]), tokenizer, digits, POSITIONS)
    fit(model, digits, [("copy", copying, arguments.copy_steps), ("mix", mixed, arguments.steps)])
    sharpen(model, SHARPNESS)
    save(model, tokenizer, arguments.output)
    print(f"{time.monotonic() - began:.0f} s, {sum(p.numel() for p in model.parameters())} parameters")


if __name__ == "__main__":
    main()
