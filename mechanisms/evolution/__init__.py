"""The parts that evolutionary generators share: the loop, its journal, and votes."""
