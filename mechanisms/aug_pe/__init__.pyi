from .generator import AugPE as AugPE
from .generator import AugPEResult as AugPEResult
