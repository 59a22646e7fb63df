from .guarantees import convert as convert
from .guarantees import refusal as refusal
