from .generator import TwoStage as TwoStage
from .row_tokens import RowTokens as RowTokens
