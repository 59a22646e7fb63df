"""The published claims that `cupel claims` checks, a file each; installed as `cupel.published_claims.rows`."""
