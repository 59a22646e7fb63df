"""Attacks on dataset vectors: two neighbours told apart by what is released, and members found in the vectors."""
