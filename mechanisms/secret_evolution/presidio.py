"""Personal data found by Presidio (``pip install '.[presidio]'``), without network access.

Patterns (addresses, card and phone numbers) need no model. Names of people and places need an installed spaCy model.
By default Presidio downloads a missing model, and the list of domains by which it validates e-mail addresses; here both
are disabled: a missing model is an error, and every address counts, whatever its domain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dpassay.base.extras import install

MISSING = f"the library presidio-analyzer is not installed; a source of kind presidio needs {install('presidio')}"
_LANGUAGE = "en"


def finder(entities: Sequence[str], model: str | None) -> Callable[[str], list[tuple[str, str]]]:
    """A function that returns the (entity, matched text) pairs of a text, with any score of Presidio, for its names of
    what to find, such as ``EMAIL_ADDRESS``, and an installed spaCy model for entities that need one.

    Raises:
        ValueError: if Presidio or the model is not installed, or an entity is not supported.
    """
    try:
        import presidio_analyzer
    except ImportError:
        raise ValueError(MISSING) from None
    with _silent():
        engine = presidio_analyzer.AnalyzerEngine(nlp_engine=_nlp(model), supported_languages=[_LANGUAGE])
        if model is None:
            engine.registry.remove_recognizer("SpacyRecognizer")  # without a model it would accept names but find none
        for recognizer in engine.registry.recognizers:
            if isinstance(recognizer, presidio_analyzer.predefined_recognizers.EmailRecognizer):
                recognizer.validate_result = lambda _: None  # no validation of a match: the pattern alone decides
        supported = set(engine.get_supported_entities(_LANGUAGE))
    unknown = sorted(set(entities) - supported)
    if unknown:
        needed = "" if model else " without a spaCy model such as model: en_core_web_sm"
        raise ValueError(
            f"Presidio does not find {', '.join(unknown)}{needed}; it finds {', '.join(sorted(supported))}"
        )

    def find(text: str) -> list[tuple[str, str]]:
        with _silent():
            results = engine.analyze(text, _LANGUAGE, entities=list(entities), score_threshold=0.0)
        results.sort(key=lambda result: (result.start, result.end))
        return [(result.entity_type, text[result.start : result.end]) for result in results]

    return find


def _nlp(model: str | None) -> Any:
    import spacy
    from presidio_analyzer.nlp_engine import SpacyNlpEngine

    if model is not None:
        if not spacy.util.is_package(model):
            raise ValueError(
                f"the spaCy model {model!r} is not installed; get it with python -m spacy download {model}"
            )
        if not spacy.load(model).has_pipe("ner"):
            raise ValueError(f"the spaCy model {model!r} recognises no names: it has no component ner")
        return SpacyNlpEngine(models=[{"lang_code": _LANGUAGE, "model_name": model}])
    engine = SpacyNlpEngine(models=[{"lang_code": _LANGUAGE, "model_name": "blank"}])
    engine.nlp = {_LANGUAGE: spacy.blank(_LANGUAGE)}
    return engine


@contextmanager
def _silent() -> Iterator[None]:
    """Disables Presidio's log, which could show what it finds."""
    logger = logging.getLogger("presidio-analyzer")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
