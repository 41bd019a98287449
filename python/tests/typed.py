"""A program whose types mypy checks: what is passed, and what comes back."""

from typing import Dict, Optional, Union

import minos


def use(client: minos.Client) -> None:
    value: Optional[bytes] = client.get("a")
    sure: Union[bytes, int, None] = client.get("a", 7)
    by_text: Dict[str, bytes] = client.get_many({"a", "b"})
    by_bytes: Dict[bytes, bytes] = client.get_many(key for key in (b"a", b"b"))
    client.set_many({"a": b"1"}, ttl=0)
    client.set_many([("a", memoryview(b"1"))])
    number: Optional[int] = client.incr("n", initial=1, timeout=0.5)
    changed: Optional[bool] = client.cas("a", "b", 7)
    client.get(7)  # type: ignore[arg-type]
    client.get_many(7)  # type: ignore[arg-type]
    print(value, sure, by_text, by_bytes, number, changed, minos.__version__)


async def use_async() -> None:
    async with await minos.AsyncClient.connect("127.0.0.1:11311", timeout=1) as client:
        value: Optional[bytes] = await client.get("a")
        found: Dict[str, bytes] = await client.get_many(["a"])
        print(value, found)
