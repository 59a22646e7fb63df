"""Claims about private inference, its runs, their audits, and the sentences of their reports."""
