"""A finished assay as JSON and HTML."""
