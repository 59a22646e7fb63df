"""The audits that are commands of their own, a folder each."""
