"""The audits that are commands of their own."""
