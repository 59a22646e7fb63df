"""Checks of the public fields that several mechanisms have. Each raises a `ValueError` that names the field."""

from __future__ import annotations

from dpassay.accounting.adjacency import Adjacency


def check_labels(labels: object) -> None:
    """Checks that labels are different texts, none of them empty; YAML and callers may pass another type."""
    if not isinstance(labels, tuple) or not all(isinstance(label, str) and label for label in labels):
        raise ValueError("labels must be a tuple of non-empty strings")
    if len(set(labels)) != len(labels):
        raise ValueError("labels must name each label once")


def check_adjacency(adjacency: Adjacency) -> None:
    """Checks the neighbouring relation of a mechanism that protects a record or a user."""
    if adjacency not in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
        raise ValueError(f"adjacency must be add_remove or replace_one, not {str(adjacency)!r}")
