from .read import json_schema as json_schema
from .read import read_claim as read_claim
