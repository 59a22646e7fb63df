from .adaptive import BudgetExhausted as BudgetExhausted
from .filter import Filter as Filter
from .filter import order_for as order_for
from .odometer import Odometer as Odometer
