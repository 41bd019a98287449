"""Client of Minos, a size-aware sharded key-value store.

Client is for programs with threads, AsyncClient for asyncio.

Keys and values are bytes; a str stands for its UTF-8, and anything that memoryview accepts for its bytes. Times are
seconds as floats. A ttl of None or 0 never expires, a negative one expires immediately. Every call takes a timeout of
its own. Every call can raise Error and its subclasses, and ValueError or TypeError for invalid arguments.
"""

from ._aio import AsyncClient
from ._client import Client
from ._errors import Partial
from ._minos import (
    Busy,
    Error,
    NoMemory,
    NotANumber,
    OutcomeUnknown,
    TimedOut,
    TooLarge,
    Unstable,
    Value,
    __version__,
)

__all__ = [
    "AsyncClient",
    "Busy",
    "Client",
    "Error",
    "NoMemory",
    "NotANumber",
    "OutcomeUnknown",
    "Partial",
    "TimedOut",
    "TooLarge",
    "Unstable",
    "Value",
    "__version__",
]
