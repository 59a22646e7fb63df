from .generator import TwoStage as TwoStage
