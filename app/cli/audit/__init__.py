"""`dpassay audit`: a file a group of its commands."""
