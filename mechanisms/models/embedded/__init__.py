"""The embedded default language model: under a million parameters, shipped with the package.

A small GPT-2 that copies from its context: shown `<|endoftext|> record <|endoftext|>`, it writes another document of
that kind, repeating what the record says; a key it is shown it repeats. That makes it a positive control for audits
and a generator that runs anywhere, and nothing else: it has no knowledge of language beyond the grammar
that it was trained on. Load it with `transformers` from `path()`. The scripts in `benchmarks/embedded_model/` train it
(`train.py`) and measure what it does (`evaluate.py`).
"""

import pathlib


def path() -> pathlib.Path:
    """Folder of the shipped weights, tokenizer and hash file, loadable by `transformers` `from_pretrained`."""
    return pathlib.Path(__file__).resolve().parent / "weights"
