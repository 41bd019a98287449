"""Clients over OpenSSL, against the server at ADDRESS whose authority is in FILE."""

import socket
import ssl
import sys

from pymemcache.client.base import Client, PooledClient

HOST, PORT = sys.argv[1].split(":")
LARGE = bytes(range(256)) * 20000


def context():
    context = ssl.create_default_context(cafile=sys.argv[2])
    context.check_hostname = False
    return context


def flows(client):
    assert client.set("a", b"1") and client.get("a") == b"1"
    assert client.set_many({f"k{at}": b"%d" % at for at in range(500)}) == []
    assert client.get_many([f"k{at}" for at in range(600)]) == {f"k{at}": b"%d" % at for at in range(500)}
    assert client.set("large", LARGE) and client.get("large") == LARGE
    assert client.incr("a", 41) == 42 and client.delete("a") and client.get("a") is None
    client.close()


flows(Client((HOST, int(PORT)), tls_context=context(), default_noreply=False))
flows(PooledClient((HOST, int(PORT)), tls_context=context(), default_noreply=False, max_pool_size=3))

# A request a byte at a time, each in a record of its own; and the session is resumed.
session = None
for _ in range(2):
    raw = socket.create_connection((HOST, int(PORT)))
    stream = CONTEXT.wrap_socket(raw, session=session) if session else (CONTEXT := context()).wrap_socket(raw)
    for byte in b"set slow 0 0 3\r\nabc\r\nget slow\r\n":
        stream.sendall(bytes([byte]))
    replies = b""
    while not replies.endswith(b"END\r\n"):
        replies += stream.recv(4096)
    assert replies == b"STORED\r\nVALUE slow 0 3\r\nabc\r\nEND\r\n", replies
    assert stream.session_reused == (session is not None)
    session = stream.session
    stream.sendall(b"quit\r\n")
    # The server says that it ends: a cut would raise an error.
    assert stream.recv(100) == b""

# Another authority's certificate is not accepted by the client: the control.
try:
    ssl.create_default_context().wrap_socket(socket.create_connection((HOST, int(PORT))), server_hostname="localhost")
except ssl.SSLCertVerificationError:
    pass
else:
    raise AssertionError("a stranger's certificate was accepted")
