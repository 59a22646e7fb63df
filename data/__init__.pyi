from .records import Record as Record
from .records import builtin_records as builtin_records
from .records import read_records as read_records
from .text_overlap import overlap as overlap
from .word_runs import Words as Words
