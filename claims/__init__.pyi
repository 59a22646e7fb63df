from .base import Claim as Claim
