"""A folder a generator: its claim, how it is run, the audits of its runs, and the sentences of its reports."""
