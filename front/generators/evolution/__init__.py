"""What claims about generators by evolution, and their runs, share."""
