"""The basic flows of clients that speak memcached's binary protocol, against the server at 127.0.0.1:PORT."""

import sys

import bmemcached
import pylibmc

ADDRESS = f"127.0.0.1:{sys.argv[1]}"
LARGE = bytes(range(256)) * 2000
# Some are in milliseconds, others in microseconds.
PATIENT = {"connect_timeout": 60_000, "receive_timeout": 60_000_000, "send_timeout": 60_000_000, "_poll_timeout": 60_000}


def libmemcached():
    client = pylibmc.Client([ADDRESS], binary=True, behaviors={"cas": True, **PATIENT})
    assert client.set("lib", {"a": 1}) and client.get("lib") == {"a": 1}
    assert not client.add("lib", 1) and client.replace("lib", b"x") and client.append("lib", b"y")
    value, cas = client.gets("lib")
    assert value == b"xy" and client.cas("lib", b"z", cas)
    assert client.set("number", "10") and client.incr("number", 5) == 15 and client.decr("number", 3) == 12
    # It waits for a whole time-out before it reads the reply, also memcached's.
    client.behaviors["_poll_timeout"] = 2000
    assert client.touch("lib", 1000)
    client.behaviors.update(PATIENT)
    assert client.delete("lib") and client.get("lib") is None
    assert client.set_multi({f"many{at}": at for at in range(200)}) == []
    assert client.get_multi([f"many{at}" for at in range(300)]) == {f"many{at}": at for at in range(200)}
    assert client.set("large", LARGE) and client.get("large") == LARGE
    (_, stats), = client.get_stats()
    assert int(stats["curr_items"]) > 200 and client.flush_all() and client.get("large") is None


def bmemcached_client(*user):
    client = bmemcached.Client((ADDRESS,), *user, socket_timeout=60)
    assert client.set("b", ["list"]) and client.get("b") == ["list"]
    value, cas = client.gets("b")
    assert client.cas("b", "new", cas) and not client.cas("b", "late", cas)
    assert not client.add("b", 1) and client.replace("b", "text")
    assert client.incr("counter", 2, default=7) == 7 and client.incr("counter", 2) == 9
    assert client.decr("counter", 1) == 8
    assert client.set_multi({f"b{at}": str(at) for at in range(100)}) == []
    assert client.get_multi([f"b{at}" for at in range(150)]) == {f"b{at}": str(at) for at in range(100)}
    assert client.set("large", LARGE, compress_level=0) and client.get("large") == LARGE
    assert client.delete("b") and client.get("b") is None
    assert client.stats()[ADDRESS]["version"] and client.flush_all() and client.get("large") is None
    client.disconnect_all()


libmemcached()
bmemcached_client()
# A server without users says that it knows no such command, and the client goes on.
bmemcached_client("user", "password")
print("all flows work")
