"""Audits of released data: what synthetic texts and tables repeat of their source."""
