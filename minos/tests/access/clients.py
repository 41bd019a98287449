"""Clients that log in by SASL, against the server at ADDRESS with the user app."""

import sys

import bmemcached

ADDRESS = sys.argv[1]

client = bmemcached.Client((ADDRESS,), "app", "secret", socket_timeout=60)
assert client.set("b", "text") and client.get("b") == "text" and client.delete("b")
assert client.set_multi({f"b{at}": str(at) for at in range(100)}) == []
client.disconnect_all()

for user in [("app", "wrong"), ("nobody", "secret")]:
    client = bmemcached.Client((ADDRESS,), *user, socket_timeout=60)
    try:
        client.set("b", "text")
    except bmemcached.exceptions.MemcachedException as refusal:
        assert "Auth failure" in str(refusal), refusal
    else:
        raise AssertionError(user)
