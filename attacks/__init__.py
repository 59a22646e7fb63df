"""Attacks: from released data or outputs, they compute scores or guesses."""
