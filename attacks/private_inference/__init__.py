"""Attacks on transcripts of private inference: leave-one-out losses, and the law of every token."""
