"""The module against a server."""

import os
import subprocess
import sys
import threading
import time

import pytest

import minos

EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "examples", "hello.py")


def test_values_are_read_as_stored(client):
    assert client.get("get-missing") is None
    assert client.gets("get-missing") is None
    unique = client.set("get", b"\x00bytes\xff", flags=7)
    assert client.get(b"get") == b"\x00bytes\xff"
    value = client.gets(bytearray(b"get"))
    assert (value.bytes, value.flags, value.cas) == (b"\x00bytes\xff", 7, unique)
    assert repr(value) == f"Value(bytes=b'\\x00bytes\\xff', flags=7, cas={unique})"
    client.set("text", "grün")
    assert client.get("text") == "grün".encode()
    client.set("empty", b"")
    assert client.get("empty") == b""


def test_conditions_are_kept(client):
    assert client.replace("condition", "0") is False
    assert client.add("condition", "1") is True
    assert client.add("condition", "2") is False
    assert client.replace("condition", "3") is True
    unique = client.gets("condition").cas
    assert client.cas("condition", "4", unique) is True
    assert client.cas("condition", "5", unique) is False
    assert client.cas("condition-missing", "5", unique) is None
    assert client.get("condition") == b"4"
    assert client.delete("condition") is True
    assert client.delete("condition") is False


def test_values_are_extended(client):
    assert client.append("extended", "x") is False
    client.set("extended", "b")
    assert client.append("extended", "c") and client.prepend("extended", "a")
    assert client.get("extended") == b"abc"


def test_numbers_are_counted(client):
    assert client.incr("number") is None
    assert client.incr("number", initial=10) == 10
    assert client.incr("number") == 11
    assert client.incr("number", 5, initial=1) == 16
    assert client.decr("number", 6) == 10
    assert client.decr("number", 100) == 0
    assert client.decr("number-2", initial=3) == 3
    client.set("word", "abc")
    with pytest.raises(minos.NotANumber):
        client.incr("word")


def test_items_expire(client):
    client.set("expiring", "x", ttl=0)
    assert client.get("expiring") is None
    client.set("expiring", "x", ttl=1000.5)
    assert client.touch("expiring") is True
    assert client.get_and_touch("expiring", 0) == b"x"
    assert client.get("expiring") is None
    assert client.touch("expiring", 5) is False
    with pytest.raises(ValueError):
        client.touch("expiring", -1.0)


def test_many_at_once(client):
    items = {f"many-{i}": f"value {i}" * (i % 50) for i in range(500)}
    client.set_many(items, flags=3)
    found = client.get_many([*items, "many-missing"])
    assert found == {key: value.encode() for key, value in items.items()}
    assert client.gets("many-3").flags == 3
    assert client.get_many((b"many-0", b"many-1")) == {b"many-0": b"", b"many-1": b"value 1"}
    assert client.delete_many([*items, "many-missing"]) == 500
    assert client.get_many(list(items)) == {}
    assert client.get_many([]) == {}


def test_large_values(client):
    value = bytes(range(256)) * 4000
    client.set("large", value)
    assert client.get("large") == value
    with pytest.raises(minos.TooLarge):
        client.set("larger", bytes(65 << 20))


def test_what_cannot_be_is_refused(client):
    for key in ["", "x" * 251]:
        with pytest.raises(ValueError):
            client.get(key)
    with pytest.raises(TypeError):
        client.get(7)
    with pytest.raises(TypeError):
        client.set("key", None)
    with pytest.raises(ValueError):
        minos.Client("nothing://x")
    with pytest.raises(ValueError):
        minos.Client(timeout=0)
    with pytest.raises(ValueError):
        minos.Client(timeout=float("nan"))
    with pytest.raises(ValueError):
        minos.Client(datagram_bytes_max=100)


def test_the_server_tells_of_itself(client):
    assert int(client.stats()["pid"]) > 0
    assert client.stats("settings")
    assert 0 < client.ping() < 20


def test_a_closed_client_says_so(server):
    client = server.client()
    client.close()
    client.close()
    with pytest.raises(minos.Error):
        client.get("a")
    with server.client() as client:
        pass
    with pytest.raises(minos.Error):
        client.get("a")


def test_a_secret_is_asked_for(start, tmp_path):
    secret = tmp_path / "secret"
    known = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210"
    secret.write_text(known + "\n")
    server = start("--native-secret-file", str(secret))
    with server.client(secret=known) as client:
        client.set("a", "b")
        assert client.incr("sealed", initial=1) == 1
        assert client.get("a") == b"b"
    with pytest.raises(minos.Error):
        minos.Client(server.address, secret=known.replace("7:", "8:"), timeout=2.0)
    with pytest.raises(ValueError):
        minos.Client(server.address, secret="correct horse battery staple")


def test_options_are_taken(start):
    server = start("--native-datagram", "1000")
    options = dict(datagram_bytes_max=600, in_flight_max=2, value_bytes_max=1000, all_writes_once=True)
    with server.client(**options) as client:
        client.set_many({str(i): bytes(500) for i in range(100)})
        assert len(client.get_many([str(i) for i in range(100)])) == 100
        with server.client() as other:
            other.set("large", bytes(1001))
        with pytest.raises(minos.TooLarge):
            client.get("large")


def test_a_server_that_is_gone_is_noticed(start):
    server = start()
    with server.client(timeout=0.2) as client:
        client.set("a", "b")
        server.process.kill()
        server.process.wait()
        with pytest.raises(minos.Error):
            client.get("a")


def test_other_threads_run_during_a_call(start):
    server = start()
    with server.client(timeout=1.0) as client:
        # It does not answer, so that the call takes its whole time.
        server.process.send_signal(19)
        steps = []
        is_over = threading.Event()

        def count():
            while not is_over.is_set():
                steps.append(time.monotonic())
                time.sleep(0.001)

        thread = threading.Thread(target=count)
        thread.start()
        begin = time.monotonic()
        with pytest.raises(minos.TimedOut):
            client.get("a")
        end = time.monotonic()
        is_over.set()
        thread.join()
        server.process.send_signal(18)
        # Were the interpreter held, there would be none.
        middle = begin + (end - begin) / 4, end - (end - begin) / 4
        assert any(middle[0] < step < middle[1] for step in steps)


def test_threads_may_share_a_client(client):
    client.set("shared", "0")

    def count():
        for _ in range(100):
            client.incr("shared")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("shared") == b"400"


def test_the_stub_names_what_there_is():
    stub = open(os.path.join(os.path.dirname(__file__), "..", "minos.pyi")).read()
    for name in dir(minos.Client):
        if not name.startswith("_"):
            assert f"    def {name}(" in stub, name
    for line in stub.splitlines():
        if line.startswith("    def ") and "self" in line and not line.startswith("    def __init__"):
            name = line[len("    def ") :].split("(")[0]
            assert hasattr(minos.Client, name) or hasattr(minos.Value, name), name
        if line.startswith("class "):
            assert hasattr(minos, line[len("class ") :].split("(")[0].rstrip(":")), line


def test_the_example_says_hello(client, server):
    output = subprocess.run(
        [sys.executable, EXAMPLE, server.address], stdout=subprocess.PIPE, check=True
    ).stdout.decode()
    assert output == "hello\n{'a': b'1', 'b': b'2'}\n"
