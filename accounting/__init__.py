"""Upper bounds: guarantees, events, the ledger, accountants."""
