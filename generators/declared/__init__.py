"""Claims about procedures that ran elsewhere: events, files of other libraries and ledgers that a claim declares."""
