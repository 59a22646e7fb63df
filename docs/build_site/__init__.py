"""The documentation as a site: `make docs` writes it to build/site, from the pages of `docs/` and from the code."""
