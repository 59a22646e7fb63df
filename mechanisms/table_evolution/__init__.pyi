from .generator import TableEvolution as TableEvolution
from .generator import TableEvolutionResult as TableEvolutionResult
