"""The client for asyncio against a server."""

import asyncio
import inspect
import os
import time

import pytest

import minos


def run(server, body, **options):
    """Runs body with a client."""

    async def with_client():
        options.setdefault("timeout", 20.0)
        async with await minos.AsyncClient.connect(server.address, **options) as client:
            return await body(client)

    return asyncio.run(with_client())


def test_every_call_does_what_it_does_without_asyncio(server):
    async def body(client):
        assert await client.get("aio") is None
        assert await client.get("aio", 7) == 7
        unique = await client.set("aio", "x", flags=3)
        value = await client.gets("aio")
        assert (value.bytes, value.flags, value.cas) == (b"x", 3, unique)
        assert await client.cas("aio", "y", unique) is True
        assert await client.cas("aio", "z", unique) is False
        assert await client.append("aio", "!") and await client.prepend("aio", "<")
        assert await client.get_and_touch("aio", -1) == b"<y!"
        assert await client.touch("aio") is False
        assert await client.add("aio", "a") and not await client.add("aio", "b")
        assert await client.replace("aio", "c")
        assert await client.delete("aio") and not await client.delete("aio")
        assert await client.incr("aio-n", initial=5) == 5
        assert await client.decr("aio-n", 2) == 3
        assert int((await client.stats())["pid"]) > 0
        assert 0 < await client.ping() < 20
        assert client.server() == server.address and client.counters()["completed"] > 10

    run(server, body)


def test_what_waits_for_room_beside_what_has_no_answer_waits_no_longer_than_that(start):
    server = start()

    async def body(client):
        server.pause()
        begun = time.monotonic()
        with pytest.raises(minos.Partial) as caught:
            await client.get_many(str(i) for i in range(40_000))
        errors = caught.value.failed.values()
        assert len(errors) == 40_000 and all(isinstance(error, minos.TimedOut) for error in errors)
        # Those that come first, and those that get their room: ten time-outs before the fix.
        assert time.monotonic() - begun < 30

    run(server, body, timeout=4.0)


def test_what_tasks_ask_for_together_shares_datagrams(server):
    async def body(client):
        value = bytes(range(256)) * 4000
        await client.set("aio-large", value)
        await client.set_many((f"aio-{i}", str(i)) for i in range(500))
        before = client.counters()
        tasks = [asyncio.ensure_future(client.get(f"aio-{i}")) for i in range(200)]
        while client.counters()["submitted"] < before["submitted"] + 200:
            await asyncio.sleep(0)
        assert client.counters()["datagrams_sent"] - before["datagrams_sent"] < 50
        assert await asyncio.gather(*tasks) == [str(i).encode() for i in range(200)]
        assert len(await client.get_many(f"aio-{i}" for i in range(600))) == 500
        assert await client.get("aio-large") == value
        assert await client.delete_many(f"aio-{i}" for i in range(500)) == 500

    run(server, body)


def test_more_than_may_be_unfinished_waits_for_its_turn(server):
    async def body(client):
        keys = [f"aio-many-{i}" for i in range(10_000)]
        await client.set_many({key: "x" for key in keys})
        assert len(await client.get_many(keys)) == len(keys)
        assert await client.delete_many(keys) == len(keys)

    run(server, body)


def test_errors_are_raised_and_parts_are_there(server):
    async def body(client):
        await client.set("aio-part", "x")
        with pytest.raises(ValueError):
            await client.get("")
        with pytest.raises(minos.Partial) as raised:
            await client.get_many(["aio-part", ""])
        assert raised.value.found == {"aio-part": b"x"} and list(raised.value.failed) == [""]

    run(server, body)


def test_a_call_that_is_given_up_harms_no_other(start):
    server = start()

    async def body(client):
        await client.set("a", "b")
        server.pause()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.get("a"), 0.05)
        with pytest.raises(minos.TimedOut):
            await client.get("a", timeout=0.05)
        waiting = asyncio.ensure_future(client.get("a"))
        await asyncio.sleep(0.01)
        server.resume()
        assert await waiting == b"b"

    run(server, body)


def test_a_closed_client_fails_what_is_under_way(start):
    server = start()

    async def body(client):
        server.pause()
        waiting = asyncio.ensure_future(client.get("a"))
        await asyncio.sleep(0.01)
        client.close()
        client.close()
        with pytest.raises(minos.Error):
            await waiting
        with pytest.raises(minos.Error):
            await client.get("a")

    run(server, body)


def test_a_client_that_cannot_connect_leaves_nothing_behind():
    async def fails():
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(minos.TimedOut):
            await minos.AsyncClient.connect("127.0.0.1:9", timeout=0.1)
        assert len(os.listdir("/proc/self/fd")) == before

    asyncio.run(fails())


def test_both_clients_have_the_same_calls():
    def calls(client):
        return {
            name: (inspect.signature(member).parameters, inspect.getdoc(member))
            for name, member in vars(client).items()
            if not name.startswith("_") and name not in ("connect", "close")
        }

    assert calls(minos.Client) == calls(minos.AsyncClient)
