from .result import AuditResult as AuditResult
from .result import Rate as Rate
from .verdict import Verdict as Verdict
from .verdict import decide as decide
