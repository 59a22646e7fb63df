"""What generators by evolution share: the loop, its journal, and votes."""
