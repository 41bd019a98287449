"""The client that was written from the protocol's document, against a server in each of its forms."""

import os
import struct

import pytest

from plain import CREATE, GET, INCR, NOT_FOUND, OK, ONCE, PUT, STATS, Plain

SECRET = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210"


@pytest.fixture(params=["plain", "sealed", "single port", "small datagrams"])
def plain(request, start, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    options = {
        "plain": [],
        "sealed": ["--native-secret-file", str(secret)],
        "single port": ["--native-single-port"],
        "small datagrams": ["--native-datagram", "600", "--native-window", "8"],
    }[request.param]
    server = start(*options)
    is_sealed = request.param == "sealed"
    # Waits until the server answers.
    server.client(**(dict(secret=SECRET) if is_sealed else {})).close()
    plain = Plain(int(server.address.rsplit(":")[-1]), SECRET if is_sealed else "")
    yield plain
    plain.close()


def test_a_vector_of_operations(plain):
    operations = [
        plain.long(PUT, b"greeting", b"hello", request=1, item_flags=9),
        plain.short(GET, b"missing", 2),
    ]
    answers = plain.ask(*operations, queue=1)
    assert answers[1][0] == OK and answers[2][0] == NOT_FOUND
    status, value, flags, cas = plain.ask(plain.short(GET, b"greeting", 3))[3]
    assert (status, value, flags, cas) == (OK, b"hello", 9, answers[1][3])


def test_once_is_once(plain):
    assert plain.session != 0
    number = struct.pack("<Q", 5)
    operation = plain.long(INCR, b"number", number, request=4, flags=ONCE | CREATE, once=1, operand=1)
    first = plain.ask(operation)[4]
    assert first[:2] == (OK, number)
    # On another queue as well.
    assert plain.ask(operation, queue=1)[4] == first
    again = plain.long(INCR, b"number", request=5, flags=ONCE, once=2, operand=1)
    assert plain.ask(again)[5][1] == struct.pack("<Q", 6)


def test_large_values_are_paced(plain):
    value = os.urandom(200_001)
    plain.store_large(b"large", value)
    assert plain.fetch_large(b"large") == value


def test_the_server_tells_of_itself(plain):
    lines, first = [], 0
    while True:
        status, text, first, count = plain.ask(plain.long(STATS, b"", request=9, operand=first))[9]
        assert status == OK and text.endswith(b"\n")
        lines += text.decode().splitlines()
        if first == count:
            break
    assert len(lines) == count and lines[0].startswith("pid ")
