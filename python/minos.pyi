"""Client of Minos, a size-aware sharded key-value store.

Keys and values are bytes; a str stands for its UTF-8. Times are seconds as floats. A ttl of None never ends, one of 0
is over at once. What can go wrong in every call: Error and its subclasses, and ValueError for what cannot be passed.
"""

from types import TracebackType
from typing import Dict, Mapping, Optional, Sequence, Type, TypeVar, Union

_Bytes = Union[bytes, bytearray, str]
_Key = TypeVar("_Key", bytes, str)

class Error(Exception):
    """A call failed."""

class TimedOut(Error):
    """No answer in time; what was asked for may have been done, or may still be."""

class OutcomeUnknown(Error):
    """The server was started again: it was done once or not at all."""

class TooLarge(Error):
    """The value is larger than the server or this client takes."""

class NoMemory(Error):
    """The server has no memory for the value."""

class NotANumber(Error):
    """The item to count with holds no number."""

class Busy(Error):
    """The server met a bound on transfers or sessions all the time."""

class Value:
    """A value and what the server keeps with it."""

    @property
    def bytes(self) -> bytes:
        """The value."""
    @property
    def flags(self) -> int:
        """What the client that stored it keeps with it."""
    @property
    def cas(self) -> int:
        """Changes with each store of the item; for Client.cas."""

class Client:
    """A client of one server.

    Other threads run during a call. Threads may share a client, but only one of them is served at a time: give each
    a client of its own where that matters. A child process must make clients of its own.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:11311",
        *,
        timeout: float = 2.0,
        secret: Optional[_Bytes] = None,
        value_bytes_max: Optional[int] = None,
        datagram_bytes_max: Optional[int] = None,
        in_flight_max: Optional[int] = None,
        all_writes_once: bool = False,
    ) -> None:
        """Connects to the server at "minos://HOST:PORT" or "HOST:PORT", which must answer.

        timeout is how long an operation may take, retries included; for a large value, how long it may stand still.
        secret is a line of what the server was given by --native-secret-file, as `minos secret` prints it. With all_writes_once the server executes every
        write exactly once, and not only those that a second execution would make wrong.
        """
    def __enter__(self) -> "Client": ...
    def __exit__(
        self,
        exception_type: Optional[Type[BaseException]],
        exception: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...
    def close(self) -> None:
        """Ends the client; later calls fail."""
    def ping(self) -> float:
        """How long the server takes to answer."""
    def get(self, key: _Bytes) -> Optional[bytes]:
        """The value, if there is one."""
    def gets(self, key: _Bytes) -> Optional[Value]:
        """The value with its flags and its CAS unique, if there is one."""
    def get_many(self, keys: Sequence[_Key]) -> Dict[_Key, bytes]:
        """The values that there are, in as few datagrams as hold them."""
    def get_and_touch(self, key: _Bytes, ttl: Optional[float] = None) -> Optional[bytes]:
        """The value, if there is one, which gets another time to live."""
    def set(self, key: _Bytes, value: _Bytes, *, ttl: Optional[float] = None, flags: int = 0) -> int:
        """Stores a value. Returns its CAS unique."""
    def set_many(
        self, items: Mapping[_Key, _Bytes], *, ttl: Optional[float] = None, flags: int = 0
    ) -> None:
        """Stores values, in as few datagrams as hold them. Raises the first error; the others are tried all the same."""
    def add(self, key: _Bytes, value: _Bytes, *, ttl: Optional[float] = None, flags: int = 0) -> bool:
        """Stores a value if there is none. Returns whether it did."""
    def replace(self, key: _Bytes, value: _Bytes, *, ttl: Optional[float] = None, flags: int = 0) -> bool:
        """Stores a value if there is one. Returns whether it did."""
    def cas(
        self, key: _Bytes, value: _Bytes, cas: int, *, ttl: Optional[float] = None, flags: int = 0
    ) -> Optional[bool]:
        """Stores a value if the item's CAS unique is still cas.

        Returns True if it was stored, False if the item has changed, None if it is gone.
        """
    def append(self, key: _Bytes, end: _Bytes) -> bool:
        """Adds to the end of a value. Returns whether there was one."""
    def prepend(self, key: _Bytes, beginning: _Bytes) -> bool:
        """Adds to the beginning of a value. Returns whether there was one."""
    def delete(self, key: _Bytes) -> bool:
        """Deletes an item. Returns whether there was one."""
    def delete_many(self, keys: Sequence[_Bytes]) -> int:
        """Deletes items. Returns how many there were."""
    def touch(self, key: _Bytes, ttl: Optional[float] = None) -> bool:
        """Gives an item another time to live. Returns whether there was one."""
    def incr(
        self, key: _Bytes, by: int = 1, *, initial: Optional[int] = None, ttl: Optional[float] = None
    ) -> Optional[int]:
        """Adds to a decimal number, modulo 2**64. Returns the number.

        Where there is none it is made as initial, with ttl; without initial, None is returned.
        """
    def decr(
        self, key: _Bytes, by: int = 1, *, initial: Optional[int] = None, ttl: Optional[float] = None
    ) -> Optional[int]:
        """Subtracts from a decimal number, at most down to 0; otherwise as incr."""
    def stats(self, group: str = "") -> Dict[str, str]:
        """Names and values about the server."""
