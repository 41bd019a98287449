"""The client for asyncio."""

import asyncio
import time
from collections import deque
from types import TracebackType
from typing import Deque, Dict, Iterable, List, Optional, Tuple, Type, Union

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
from ._minos import Busy, Error, Native, TimedOut, Value
from ._types import Request, Result


class AsyncClient:
    """A client of one server, or of one of several that replace each other, for one asyncio loop.

    Tasks share it: simultaneous operations share datagrams. A cancelled call may be executed or not, like one that
    timed out. Created by connect.
    """

    def __init__(self, native: Native, timeout: float) -> None:
        """For connect only."""
        self._native = native
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._futures: Dict[int, "asyncio.Future[Result]"] = {}
        # Operations that wait for room, and since when.
        self._backlog: Deque[Tuple[Request, float, "asyncio.Future[Result]"]] = deque()
        # When an operation was last answered.
        self._answered = 0.0
        self._timer: Optional[asyncio.TimerHandle] = None
        self._is_stepping = False
        self._is_closed = False
        self._loop.add_reader(native.fileno(), self._step)

    @classmethod
    async def connect(
        cls,
        address: str = "127.0.0.1:11311",
        *,
        timeout: float = 2.0,
        secret: Optional[Bytes] = None,
        value_bytes_max: Optional[int] = None,
        datagram_bytes_max: Optional[int] = None,
        in_flight_max: Optional[int] = None,
        all_writes_once: bool = True,
        reads: str = "weighted",
    ) -> "AsyncClient":
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
        # The resolution of a host name may take long.
        opened = await asyncio.get_running_loop().run_in_executor(
            None,
            native,
            address,
            timeout,
            secret,
            value_bytes_max,
            datagram_bytes_max,
            in_flight_max,
            all_writes_once,
            reads,
        )
        client = cls(opened, timeout)
        try:
            await client.ping()
        except BaseException:
            client.close()
            raise
        return client

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self,
        exception_type: Optional[Type[BaseException]],
        exception: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the client; pending and later calls fail."""
        self._end(Error("the client has ended"))

    def server(self) -> str:
        """The address of the server in use."""
        return self._native.server()

    def counters(self) -> Dict[str, int]:
        """The counters so far: drains, failovers, lost, restarts and more."""
        return self._native.counters()

    async def _call(self, wanted: Request) -> Result:
        return await self._begin(wanted)

    async def _call_many(self, wanted: List[Request]) -> List[Result]:
        futures = [self._begin(request) for request in wanted]
        return list(await asyncio.gather(*futures))

    def _begin(self, wanted: Request) -> "asyncio.Future[Result]":
        if self._is_closed:
            raise Error("the client has ended")
        future: "asyncio.Future[Result]" = self._loop.create_future()
        self._backlog.append((wanted, time.monotonic(), future))
        self._step_soon()
        return future

    def _step_soon(self) -> None:
        # One step for all operations of this turn of the loop.
        if not self._is_stepping:
            self._is_stepping = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Starts operations while there is room, sends and receives datagrams, and schedules the next step."""
        self._is_stepping = False
        if self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._start()
            ended = self._native.step()
        except Error as error:
            self._end(error)
            return
        if not all(isinstance(result, (TimedOut, Busy)) for _, result in ended):
            self._answered = time.monotonic()
        for number, result in ended:
            self._settle(self._futures.pop(number), result)
        # Ended operations made room for waiting ones.
        if ended and self._backlog:
            self._step_soon()
        seconds = self._native.until_next()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._step)

    def _start(self) -> None:
        now = time.monotonic()
        while self._backlog:
            wanted, since, future = self._backlog[0]
            number = None if future.done() else self._native.start(wanted)
            if number is None and not future.done():
                # As long as there are answers, there will be room.
                if now - max(since, self._answered) < (wanted[-1] or self._timeout):
                    break
                late = TimedOut("no answer in time")
                late.was_sent = False
                self._settle(future, late)
            self._backlog.popleft()
            if number is not None:
                self._futures[number] = future

    @staticmethod
    def _settle(future: "asyncio.Future[Result]", result: Result) -> None:
        # A cancelled future has no waiter.
        if not future.done():
            future.set_result(result)

    def _end(self, error: Error) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._native.fileno())
        if self._timer is not None:
            self._timer.cancel()
        for future in [*self._futures.values(), *(future for *_, future in self._backlog)]:
            self._settle(future, error)
        self._futures.clear()
        self._backlog.clear()
        self._native.close()

    async def get(
        self, key: Bytes, default: Union[bytes, Default, None] = None, *, timeout: Optional[float] = None
    ) -> Union[bytes, Default, None]:
        """The value, or default if there is none."""
        return value_or(await self._call(request("get", key, timeout=timeout)), default)

    async def gets(self, key: Bytes, *, timeout: Optional[float] = None) -> Optional[Value]:
        """The value with its flags and its CAS unique, if there is one."""
        value: Optional[Value] = good(await self._call(request("get", key, timeout=timeout)))
        return value

    async def get_many(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> Dict[Key, bytes]:
        """The values of those keys that exist, read in as few datagrams as possible.

        Raises Partial, with the values and the errors, if some keys failed.
        """
        keys = several(keys)
        results = await self._call_many([request("get", key, timeout=timeout) for key in keys])
        return found_of(keys, results)

    async def get_and_touch(
        self, key: Bytes, ttl: Optional[float] = None, *, timeout: Optional[float] = None
    ) -> Optional[bytes]:
        """The value, if there is one; also changes its time to live."""
        return value_or(await self._call(request("get_and_touch", key, ttl=ttl, timeout=timeout)), None)

    async def set(
        self,
        key: Bytes,
        value: Bytes,
        *,
        ttl: Optional[float] = None,
        flags: int = 0,
        timeout: Optional[float] = None,
    ) -> int:
        """Stores a value. Returns its CAS unique."""
        unique: int = good(await self._call(request("put", key, value, ttl=ttl, flags=flags, timeout=timeout)))
        return unique

    async def set_many(
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
        results = await self._call_many(
            [
                request("put", key, value, ttl=ttl, flags=flags, timeout=timeout)
                for key, value in stored
            ]
        )
        check([key for key, _ in stored], results)

    async def add(
        self,
        key: Bytes,
        value: Bytes,
        *,
        ttl: Optional[float] = None,
        flags: int = 0,
        timeout: Optional[float] = None,
    ) -> bool:
        """Stores a value if there is none. Returns True if it was stored."""
        return was_stored(await self._call(request("add", key, value, ttl=ttl, flags=flags, timeout=timeout)))

    async def replace(
        self,
        key: Bytes,
        value: Bytes,
        *,
        ttl: Optional[float] = None,
        flags: int = 0,
        timeout: Optional[float] = None,
    ) -> bool:
        """Stores a value if there is one. Returns True if it was stored."""
        return was_stored(await self._call(request("replace", key, value, ttl=ttl, flags=flags, timeout=timeout)))

    async def cas(
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
        return compared(await self._call(wanted))

    async def append(self, key: Bytes, end: Bytes, *, timeout: Optional[float] = None) -> bool:
        """Appends to a value. Returns True if there was one."""
        return was_stored(await self._call(request("append", key, end, timeout=timeout)))

    async def prepend(self, key: Bytes, beginning: Bytes, *, timeout: Optional[float] = None) -> bool:
        """Prepends to a value. Returns True if there was one."""
        return was_stored(await self._call(request("prepend", key, beginning, timeout=timeout)))

    async def delete(self, key: Bytes, *, timeout: Optional[float] = None) -> bool:
        """Deletes an item. Returns True if there was one."""
        return was_stored(await self._call(request("delete", key, timeout=timeout)))

    async def delete_many(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> int:
        """Deletes items. Returns the number of items deleted.

        Raises Partial, with the errors, if some failed; the others were tried all the same.
        """
        keys = several(keys)
        results = await self._call_many([request("delete", key, timeout=timeout) for key in keys])
        check(keys, results)
        return sum(map(was_stored, results))

    async def touch(
        self, key: Bytes, ttl: Optional[float] = None, *, timeout: Optional[float] = None
    ) -> bool:
        """Changes the time to live of an item. Returns True if there was one."""
        return was_stored(await self._call(request("touch", key, ttl=ttl, timeout=timeout)))

    async def incr(
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
        number: Optional[int] = good(await self._call(wanted))
        return number

    async def decr(
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
        number: Optional[int] = good(await self._call(wanted))
        return number

    async def flush_all(self, delay: float = 0, *, timeout: Optional[float] = None) -> None:
        """Drops all items of the server, now or after delay seconds."""
        good(await self._call(request("flush", ttl=max(delay, 0), timeout=timeout)))

    async def stats(self, group: str = "", *, timeout: Optional[float] = None) -> Dict[str, str]:
        """The server's statistics: names and values."""
        return lines(await self._call(request("stats", group, timeout=timeout)))

    async def ping(self, *, timeout: Optional[float] = None) -> float:
        """The time until the server answers, in seconds."""
        begun = time.monotonic()
        good(await self._call(request("ping", timeout=timeout)))
        return time.monotonic() - begun
