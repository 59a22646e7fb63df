from .registry import CheckedClaim as CheckedClaim
from .registry import check_claim as check_claim
from .registry import read_published_claims as read_published_claims
