"""One folder for each generator: its claim, its runs, their audits, and the sentences of its reports."""
