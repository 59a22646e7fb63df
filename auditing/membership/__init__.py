"""Membership inference audits: of scores, of models, of synthetic text."""
