from .read import json_schema as json_schema
from .read import make_claim as make_claim
from .read import read_claim as read_claim
