"""The basic flows of redis-py, in both versions of the protocol, against the server at 127.0.0.1:PORT."""

import sys
import time

import redis
from redis.cache import CacheConfig

PORT = int(sys.argv[1])
LARGE = bytes(range(256)) * 4000


def flows(protocol):
    client = redis.Redis(port=PORT, protocol=protocol, client_name="flows")
    assert client.ping() and client.flushall() and client.dbsize() == 0
    assert client.set("k", "v") and client.get("k") == b"v" and client.set("k", "w", nx=True) is None
    assert client.set("k", "w", xx=True, get=True) == b"v" and client.set("k", LARGE, ex=100)
    assert client.get("k") == LARGE and 0 < client.ttl("k") <= 100 and client.persist("k")
    assert client.getrange("k", 1, 3) == LARGE[1:4] and client.strlen("k") == len(LARGE)
    assert client.set("k", LARGE, keepttl=True, get=True) == LARGE and client.getdel("k") == LARGE
    assert client.mset({f"m{at}": at for at in range(100)})
    assert client.mget([f"m{at}" for at in range(100)]) == [b"%d" % at for at in range(100)]
    assert client.incr("n", 41) == 41 and client.incrbyfloat("n", 0.5) == 41.5 and client.append("m0", "x") == 2
    assert sorted(client.scan_iter("m1*")) == sorted(client.keys("m1*")) and len(client.keys("*")) == 101
    assert client.expire("m1", 50, nx=True) and client.pexpiretime("m1") > 0 and client.rename("m1", "r")
    assert client.exists("m1", "r", "r") == 2 and client.copy("r", "s") and client.delete("r", "s", "t") == 2
    assert client.setbit("b", 7, 1) == 0 and client.bitcount("b") == 1 and client.lcs("m0", "n") == b""
    assert client.object("encoding", "m2") == b"int" and client.type("m2") == b"string"
    assert client.client_getname() in (b"flows", "flows") and client.client_id() > 0
    assert client.info()["redis_version"] and int(client.config_get("maxmemory")["maxmemory"]) > 0
    assert client.command_count() == len(client.command()) and client.time()[0] > 0
    transactions(client)
    try:
        client.execute_command("LPUSH", "l", 1)
    except redis.ResponseError as error:
        assert "unknown command" in str(error)
    else:
        raise AssertionError("lists are not there")


def caches():
    """The client keeps what it reads, and hears of changes by others. It asks for a version of Redis that Minos is not."""
    redis.connection.CacheProxyConnection.MIN_ALLOWED_VERSION = "7.0.0"
    client = redis.Redis(port=PORT, protocol=3, cache_config=CacheConfig())
    other = redis.Redis(port=PORT)
    for value in (b"1", b"2", b"3"):
        other.set("cached", value)
        begun = time.monotonic()
        while client.get("cached") != value:
            assert time.monotonic() < begun + 60, "the cached value is stale"
        assert client.get_cache().size == 1 and client.get("cached") == value
    other.flushall()
    begun = time.monotonic()
    while client.get("cached") is not None:
        assert time.monotonic() < begun + 60, "the flush was not heard of"


def transactions(client):
    with client.pipeline() as pipe:
        assert pipe.set("p", 1).incr("p").get("p").execute() == [True, 2, b"2"]
    with client.pipeline() as pipe:
        pipe.watch("p")
        client.set("p", 5)
        pipe.multi()
        pipe.incr("p")
        try:
            pipe.execute()
        except redis.WatchError:
            pass
        else:
            raise AssertionError("the change was not seen")
    client.transaction(add_one, "p")
    assert client.get("p") == b"6"


def add_one(pipe):
    number = int(pipe.get("p"))
    pipe.multi()
    pipe.set("p", number + 1)


for version in (2, 3):
    flows(version)
caches()
