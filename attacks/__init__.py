"""Adversaries: they see released artefacts and give scores or guesses."""
