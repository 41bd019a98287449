"""Conversion of arguments to requests and of results to values, for both clients."""

import math
import operator
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, TypeVar, Union

from ._errors import Partial
from ._minos import Native, Value
from ._types import Request, Result

Bytes = Union[bytes, bytearray, memoryview, str]
Key = TypeVar("Key", bytes, str, Union[bytes, str])
Default = TypeVar("Default")
Items = Union[Mapping[Key, Bytes], Iterable[Tuple[Key, Bytes]]]

_RELATIVE_MAX_S = 60 * 60 * 24 * 30
_EXPTIME_MAX = 2**31 - 1
# Longer times are as good as forever.
_SECONDS_MAX = 1e9


def native(
    address: str,
    timeout: float,
    secret: Optional[Bytes],
    value_bytes_max: Optional[int],
    datagram_bytes_max: Optional[int],
    in_flight_max: Optional[int],
    all_writes_once: bool,
    reads: str,
) -> Native:
    """A client that has sent nothing yet."""
    return Native(
        address,
        _seconds(timeout),
        None if secret is None else octets(secret),
        _optional(value_bytes_max, "value_bytes_max"),
        _optional(datagram_bytes_max, "datagram_bytes_max"),
        _optional(in_flight_max, "in_flight_max"),
        all_writes_once,
        reads,
    )


def octets(data: Bytes) -> bytes:
    """The bytes of an argument."""
    if isinstance(data, str):
        return data.encode()
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"keys and values are bytes or str, not {type(data).__name__}") from None


def _number(number: int, name: str, bits: int = 64) -> int:
    whole = operator.index(number)
    if not 0 <= whole < 1 << bits:
        raise ValueError(f"{name} is 0 to 2**{bits} - 1, not {whole}")
    return whole


def _optional(number: Optional[int], name: str) -> Optional[int]:
    return None if number is None else _number(number, name, 63)


def _seconds(seconds: float) -> float:
    if math.isnan(seconds) or seconds <= 0:
        raise ValueError(f"timeout is a number of seconds above 0, not {seconds}")
    return min(float(seconds), _SECONDS_MAX)


def exptime(ttl: Optional[float]) -> int:
    """A time to live in the server's format."""
    if ttl is None or ttl == 0:
        return 0
    if math.isnan(ttl):
        raise ValueError("ttl is a number of seconds, not nan")
    if ttl < 0:
        return -1
    seconds = math.ceil(min(ttl, _EXPTIME_MAX))
    if seconds > _RELATIVE_MAX_S:
        seconds += int(time.time())
    return min(seconds, _EXPTIME_MAX)


def request(
    verb: str,
    key: Bytes = b"",
    value: Bytes = b"",
    *,
    ttl: Optional[float] = None,
    flags: int = 0,
    operand: int = 0,
    initial: Optional[int] = None,
    timeout: Optional[float] = None,
) -> Request:
    """A request for the native part."""
    return (
        verb,
        octets(key),
        octets(value),
        exptime(ttl),
        _number(flags, "flags", 32),
        _number(operand, "operand"),
        None if initial is None else _number(initial, "initial"),
        None if timeout is None else _seconds(timeout),
    )


def several(keys: Iterable[Key]) -> List[Key]:
    """A list of keys; rejects a single key."""
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise TypeError("keys are an iterable of keys, not one key")
    return list(keys)


def pairs(items: Items[Key]) -> List[Tuple[Key, Bytes]]:
    """Keys with their values."""
    return list(items.items()) if isinstance(items, Mapping) else list(items)


def _name(key: Any) -> Union[bytes, str]:
    return key if isinstance(key, (bytes, str)) else octets(key)


def good(result: Result) -> Any:
    """Returns a result, or raises it if it is an error."""
    if isinstance(result, Exception):
        raise result
    return result


def value_or(result: Result, default: Default) -> Union[bytes, Default]:
    """The bytes of a value, or default if there is none."""
    value: Optional[Value] = good(result)
    return default if value is None else value.bytes


def was_stored(result: Result) -> bool:
    """True if a store's condition held."""
    good(result)
    return result is not None and result is not False


def compared(result: Result) -> Optional[bool]:
    """The result of a compare-and-swap: True, False, or None if the item is gone."""
    good(result)
    return None if result is None else result is not False


def lines(result: Result) -> Dict[str, str]:
    """Names and values from lines."""
    text: bytes = good(result) or b""
    return dict(line.partition(" ")[::2] for line in text.decode(errors="replace").splitlines())


def found_of(keys: Iterable[Key], results: Iterable[Result]) -> Dict[Key, bytes]:
    """The values that were found."""
    results = list(results)
    found: Dict[Any, bytes] = {}
    found.update((_name(key), result.bytes) for key, result in zip(keys, results) if isinstance(result, Value))
    check(keys, results, found)
    return found


def check(
    keys: Iterable[Any], results: Iterable[Result], found: Optional[Mapping[Any, bytes]] = None
) -> None:
    """Raises Partial if some operations failed."""
    failed = {_name(key): result for key, result in zip(keys, results) if isinstance(result, Exception)}
    if failed:
        raise Partial(found or {}, failed)
