"""The embedded default language model: under a million parameters, shipped with the package.

A small GPT-2 that copies from its context: after `<|endoftext|> record <|endoftext|>`, it generates another document of
that kind, repeating content of the record; it repeats a key that it is shown. It serves as a positive control for
audits and as a generator that runs on any machine, and for nothing else: it has no knowledge of language beyond the
grammar that it was trained on. Load it with `transformers` from `path()`. The scripts in `benchmarks/embedded_model/`
train it (`train.py`) and evaluate it (`evaluate.py`).
"""

import pathlib


def path() -> pathlib.Path:
    """Folder of the shipped weights, tokenizer and hash file, loadable by `transformers` `from_pretrained`."""
    return pathlib.Path(__file__).resolve().parent / "weights"
