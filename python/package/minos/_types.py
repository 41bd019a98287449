"""Requests to the native part, and its results."""

from typing import Optional, Tuple, Union

from ._minos import Value

# Verb, key, value, expiry, flags, operand, initial number, time-out.
Request = Tuple[str, bytes, bytes, int, int, int, Optional[int], Optional[float]]
# A value; a CAS unique or a number; False if a condition does not hold; lines; None if there is no such item.
Result = Union[Value, int, bool, bytes, None, Exception]
