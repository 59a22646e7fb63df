"""The published claims that `dpassay claims` checks, a file each; installed as `dpassay.claims.published.rows`."""
