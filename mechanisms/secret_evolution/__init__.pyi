from .detection import ListedSecrets as ListedSecrets
from .detection import PatternSecrets as PatternSecrets
from .detection import PresidioSecrets as PresidioSecrets
from .detection import QuantileWords as QuantileWords
from .generator import EvolutionResult as EvolutionResult
from .generator import SecretEvolution as SecretEvolution
from .inclusion import SecretNoise as SecretNoise
