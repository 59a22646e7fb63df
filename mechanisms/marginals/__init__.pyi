from .generator import MarginalRelease as MarginalRelease
from .generator import Marginals as Marginals
