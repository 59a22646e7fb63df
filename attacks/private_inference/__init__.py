"""Attacks on transcripts of private inference: leave-one-out losses, and the distribution of every token."""
