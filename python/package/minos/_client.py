"""The client for programs with threads."""

import time
from types import TracebackType
from typing import Dict, Iterable, List, Optional, Type, Union

from ._calls import (
    Bytes,
    Default,
    Items,
    Key,
    check,
    compared,
    found_of,
    good,
    lines,
    native,
    pairs,
    request,
    several,
    value_or,
    was_stored,
)
from ._minos import Value
from ._types import Request, Result


class Client:
    """A client of one server, or of one of several that replace each other.

    Other threads run during a call, and handlers of signals, Ctrl-C included; what such a handler raises ends the call,
    whose operations may then have been executed or not. It must not use the client itself. Threads may share a client,
    but its calls run one at a time: give each thread its own client if that matters. A child process must create its
    own clients.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:11311",
        *,
        timeout: float = 2.0,
        secret: Optional[Bytes] = None,
        value_bytes_max: Optional[int] = None,
        datagram_bytes_max: Optional[int] = None,
        in_flight_max: Optional[int] = None,
        all_writes_once: bool = True,
        reads: str = "weighted",
    ) -> None:
        """Connects to the server at "minos://HOST:PORT" or "HOST:PORT", which must answer.

        Several addresses, separated by commas, name servers of the same items, or caches that replace each other:
        when one is stopping or silent, the client goes to the next. Host names are resolved once, here; one that is
        not known is left out while another is.

        timeout bounds an operation, retries included; for a large value, the time without progress, and for what waits
        for room, because 4096 operations have not ended, the time without an answer to any.
        secret is a line of the server's --native-secret-file, as `minos secret` prints it. With all_writes_once the
        server executes every write exactly once. Without, only those that must not be repeated: a set, replace or touch
        whose answer was lost or late may be executed again after later, acknowledged writes of the same key, also of
        this client, and bring the older value back.
        reads chooses the node of a rack's unit that gets a read: "weighted", as the rack balances it, "uniform", or
        "two-choices", the less busy of two; or "copies", also nodes of other units, whose copies may be old by their
        --read-copies.
        """
        self._native = native(
            address,
            timeout,
            secret,
            value_bytes_max,
            datagram_bytes_max,
            in_flight_max,
            all_writes_once,
            reads,
        )
        try:
            self.ping()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        exception_type: Optional[Type[BaseException]],
        exception: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the client; later calls fail."""
        self._native.close()

    def server(self) -> str:
        """The address of the server in use."""
        return self._native.server()

    def counters(self) -> Dict[str, int]:
        """The counters so far: drains, failovers, lost, restarts and more."""
        return self._native.counters()

    def _call(self, wanted: Request) -> Result:
        return self._native.call([wanted])[0]

    def _call_many(self, wanted: List[Request]) -> List[Result]:
        return self._native.call(wanted)

    def get(
        self, key: Bytes, default: Union[bytes, Default, None] = None, *, timeout: Optional[float] = None
    ) -> Union[bytes, Default, None]:
        """The value, or default if there is none."""
        return value_or(self._call(request("get", key, timeout=timeout)), default)

    def gets(self, key: Bytes, *, timeout: Optional[float] = None) -> Optional[Value]:
        """The value with its flags and its CAS unique, if there is one."""
        value: Optional[Value] = good(self._call(request("get", key, timeout=timeout)))
        return value

    def get_many(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> Dict[Key, bytes]:
        """The values of those keys that exist, read in as few datagrams as possible.

        Raises Partial, with the values and the errors, if some keys failed.
        """
        keys = several(keys)
        results = self._call_many([request("get", key, timeout=timeout) for key in keys])
        return found_of(keys, results)

    def get_and_touch(
        self, key: Bytes, ttl: Optional[float] = None, *, timeout: Optional[float] = None
    ) -> Optional[bytes]:
        """The value, if there is one; also changes its time to live."""
        return value_or(self._call(request("get_and_touch", key, ttl=ttl, timeout=timeout)), None)

    def set(
        self,
        key: Bytes,
        value: Bytes,
        *,
        ttl: Optional[float] = None,
        flags: int = 0,
        timeout: Optional[float] = None,
    ) -> int:
        """Stores a value. Returns its CAS unique."""
        unique: int = good(self._call(request("put", key, value, ttl=ttl, flags=flags, timeout=timeout)))
        return unique

    def set_many(
        self,
        items: Items[Key],
        *,
        ttl: Optional[float] = None,
        flags: int = 0,
        timeout: Optional[float] = None,
    ) -> None:
        """Stores the values of a mapping, or of pairs, in as few datagrams as possible.

        Raises Partial, with the errors, if some failed; the others were tried all the same.
        """
        stored = pairs(items)
        results = self._call_many(
            [
                request("put", key, value, ttl=ttl, flags=flags, timeout=timeout)
                for key, value in stored
            ]
        )
        check([key for key, _ in stored], results)

    def add(
        self,
        key: Bytes,
        value: Bytes,
        *,
        ttl: Optional[float] = None,
        flags: int = 0,
        timeout: Optional[float] = None,
    ) -> bool:
        """Stores a value if there is none. Returns True if it was stored."""
        return was_stored(self._call(request("add", key, value, ttl=ttl, flags=flags, timeout=timeout)))

    def replace(
        self,
        key: Bytes,
        value: Bytes,
        *,
        ttl: Optional[float] = None,
        flags: int = 0,
        timeout: Optional[float] = None,
    ) -> bool:
        """Stores a value if there is one. Returns True if it was stored."""
        return was_stored(self._call(request("replace", key, value, ttl=ttl, flags=flags, timeout=timeout)))

    def cas(
        self,
        key: Bytes,
        value: Bytes,
        cas: int,
        *,
        ttl: Optional[float] = None,
        flags: int = 0,
        timeout: Optional[float] = None,
    ) -> Optional[bool]:
        """Stores a value if the item's CAS unique is still cas.

        Returns True if it was stored, False if the item has changed, None if it is gone.
        """
        wanted = request("compare", key, value, ttl=ttl, flags=flags, operand=cas, timeout=timeout)
        return compared(self._call(wanted))

    def append(self, key: Bytes, end: Bytes, *, timeout: Optional[float] = None) -> bool:
        """Appends to a value. Returns True if there was one."""
        return was_stored(self._call(request("append", key, end, timeout=timeout)))

    def prepend(self, key: Bytes, beginning: Bytes, *, timeout: Optional[float] = None) -> bool:
        """Prepends to a value. Returns True if there was one."""
        return was_stored(self._call(request("prepend", key, beginning, timeout=timeout)))

    def delete(self, key: Bytes, *, timeout: Optional[float] = None) -> bool:
        """Deletes an item. Returns True if there was one."""
        return was_stored(self._call(request("delete", key, timeout=timeout)))

    def delete_many(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> int:
        """Deletes items. Returns the number of items deleted.

        Raises Partial, with the errors, if some failed; the others were tried all the same.
        """
        keys = several(keys)
        results = self._call_many([request("delete", key, timeout=timeout) for key in keys])
        check(keys, results)
        return sum(map(was_stored, results))

    def touch(
        self, key: Bytes, ttl: Optional[float] = None, *, timeout: Optional[float] = None
    ) -> bool:
        """Changes the time to live of an item. Returns True if there was one."""
        return was_stored(self._call(request("touch", key, ttl=ttl, timeout=timeout)))

    def incr(
        self,
        key: Bytes,
        by: int = 1,
        *,
        initial: Optional[int] = None,
        ttl: Optional[float] = None,
        timeout: Optional[float] = None,
    ) -> Optional[int]:
        """Adds to a decimal number, modulo 2**64. Returns the result.

        A missing number is created as initial, with ttl; without initial, None is returned.
        """
        wanted = request("incr", key, operand=by, initial=initial, ttl=ttl, timeout=timeout)
        number: Optional[int] = good(self._call(wanted))
        return number

    def decr(
        self,
        key: Bytes,
        by: int = 1,
        *,
        initial: Optional[int] = None,
        ttl: Optional[float] = None,
        timeout: Optional[float] = None,
    ) -> Optional[int]:
        """Subtracts from a decimal number, at most down to 0; otherwise as incr."""
        wanted = request("decr", key, operand=by, initial=initial, ttl=ttl, timeout=timeout)
        number: Optional[int] = good(self._call(wanted))
        return number

    def flush_all(self, delay: float = 0, *, timeout: Optional[float] = None) -> None:
        """Drops all items of the server, now or after delay seconds."""
        good(self._call(request("flush", ttl=max(delay, 0), timeout=timeout)))

    def stats(self, group: str = "", *, timeout: Optional[float] = None) -> Dict[str, str]:
        """The server's statistics: names and values."""
        return lines(self._call(request("stats", group, timeout=timeout)))

    def ping(self, *, timeout: Optional[float] = None) -> float:
        """The time until the server answers, in seconds."""
        begun = time.monotonic()
        good(self._call(request("ping", timeout=timeout)))
        return time.monotonic() - begun
