"""Attacks that run a mechanism as a black box, on neighbouring data sets."""
