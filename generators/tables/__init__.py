"""What the claims, runs and audits of generators of tables share."""
