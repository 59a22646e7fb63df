from .enumerated_neighbors import neighbors as neighbors
