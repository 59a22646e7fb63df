"""A small sentence-transformers model with random weights."""

from __future__ import annotations

from pathlib import Path


def save_growing_model(folder: Path) -> Path:
    """Writes a model whose frequencies of positions grow with the longest text that it has seen."""
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from small_models import byte_tokenizer, changing_rope

    base = folder.with_name(folder.name + "-llama")
    tokenizer = byte_tokenizer(pad_token="<|pad|>")
    tokenizer.save_pretrained(base)
    transformers.AutoModel.from_config(changing_rope("llama-dynamic", len(tokenizer))).save_pretrained(base)
    SentenceTransformer(modules=[Transformer(str(base)), Pooling(32)], device="cpu").save(str(folder))
    return folder


def save_sentence_model(folder: Path) -> Path:
    """Writes a model that reads characters; vectors of 16 numbers, texts of at most 64 tokens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    base = folder.with_name(folder.name + "-bert")
    base.mkdir(parents=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "."]
    words += [f"##{word}" for word in words[5:]]
    (base / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(base / "vocab.txt")).save_pretrained(base)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=64, **shape)).save_pretrained(base)
    transformer = Transformer(str(base), max_seq_length=64)
    SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu").save(str(folder))
    return folder
