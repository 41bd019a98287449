"""A client that was written from docs/native-protocol.md alone, so that the page is known to say enough.

It asks one thing at a time and sends nothing again: an example of the bytes, not of a good client.
"""

import os
import socket
import struct
from typing import Optional

import blake3
import xxhash

VERSION = 2
REQUEST, REPLY, HELLO, WELCOME, REFUSAL, FRAGMENT, DATA, ACK = range(1, 9)
SEALED, OPEN, ACK_WANTED = 1, 4, 8
GET, PUT, INCR, FETCH, STATS = 1, 0x10, 0x19, 0x20, 0x21
ONCE, CREATE, DEFERRED = 1, 2, 4
OK, NOT_FOUND, LARGE, GRANTED = 0, 1, 10, 11

HEADER = struct.Struct("<2sBBBBHHHIQQQQ")
SHORT = struct.Struct("<BBHIQ")
LONG = struct.Struct("<IiIIQ")
RECORD = struct.Struct("<BBHIIIQ")
WELCOME_BODY = struct.Struct("<5Q2IHBBHHHHHHQII16x")
GRANT = struct.Struct("<QQIHHB7x")
DATA_HEAD = struct.Struct("<IIQQII")
TAG_BYTES = 16
ENDS = ("server", "client")
CONTEXT = "minos native protocol 2: tags of datagrams to the "


def pad(record: bytes) -> bytes:
    return record + bytes(-len(record) % 8)


class Plain:
    def __init__(self, port: int, secret: str = "") -> None:
        """The secret is a line ID:HEX."""
        self.secret_id, self.to_server, self.to_client = 0, None, None
        if secret:
            number, digits = secret.split(":")
            keys = (blake3.blake3(bytes.fromhex(digits), derive_key_context=CONTEXT + end) for end in ENDS)
            self.secret_id, (self.to_server, self.to_client) = int(number), (key.digest() for key in keys)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(20)
        self.base_port, self.flags = port, 0
        self.geometry = self.session = self.cookie = self.seed = 0
        # Numbers start at random, so that no answer to an earlier client matches.
        self.sequence = self.asked = int.from_bytes(os.urandom(6), "little")
        self.first_request = int.from_bytes(os.urandom(3), "little") << 8
        self.hello(0)
        # With the cookie, a session can be opened.
        self.hello(OPEN)

    def close(self) -> None:
        self.socket.close()

    @staticmethod
    def tag(key: Optional[bytes], datagram: bytes) -> bytes:
        return blake3.blake3(datagram, key=key).digest()[:TAG_BYTES] if key else b""

    def send(self, kind: int, body: bytes, queue: int = 0, count: int = 0, flags: int = 0) -> None:
        self.sequence += 1
        length = HEADER.size + len(body) + (TAG_BYTES if self.to_server else 0)
        flags |= SEALED if self.to_server else 0
        identity = (self.geometry, self.session, self.cookie, 123_456, self.sequence)
        datagram = HEADER.pack(b"Mn", VERSION, kind, flags, self.secret_id, queue, length, count, *identity) + body
        is_single_port = self.flags & 1
        port = self.base_port + (0 if is_single_port else queue)
        self.socket.sendto(datagram + self.tag(self.to_server, datagram), ("127.0.0.1", port))

    def receive(self, wanted: int):
        while True:
            datagram = self.socket.recv(65536)
            magic, version, kind, flags, secret, _, length, count, _, session, _, stamp, sequence = HEADER.unpack_from(
                datagram
            )
            assert (magic, version, stamp) == (b"Mn", VERSION, 123_456)
            end = length
            if self.to_client:
                end -= TAG_BYTES
                assert flags & SEALED and secret == self.secret_id
                assert datagram[end:length] == self.tag(self.to_client, datagram[:end])
            # An answer of an earlier session has a valid tag as well.
            is_of_session = session == self.session or kind == WELCOME
            if is_of_session and self.asked < sequence <= self.sequence:
                assert kind == wanted, (kind, count)
                return count, datagram[HEADER.size : end]

    def hello(self, flags: int) -> None:
        self.asked = self.sequence
        nonce = int.from_bytes(os.urandom(8), "little")
        body = struct.pack("<QHHH", nonce, 1448, 32, VERSION)
        self.send(HELLO, body.ljust(256 - HEADER.size - (TAG_BYTES if self.to_server else 0), b"\0"), flags=flags)
        _, body = self.receive(WELCOME)
        echoed, self.boot, self.cookie, self.seed, self.session, _, self.geometry, self.queues, *rest = (
            WELCOME_BODY.unpack(body)
        )
        assert echoed == nonce
        self.partition_bits, _access, self.base_port, self.flags = rest[:4]

    def direction(self, key: bytes) -> int:
        return xxhash.xxh3_64_intdigest(key, seed=self.seed)

    def queue(self, key: bytes) -> int:
        return (self.direction(key) >> (64 - self.partition_bits)) % self.queues

    def short(self, opcode: int, key: bytes, request: int) -> bytes:
        return pad(SHORT.pack(opcode, 0, len(key), self.first_request + request, self.direction(key)) + key)

    def long(self, opcode, key, value=b"", request=1, flags=0, length=None, item_flags=0, once=0, operand=0):
        value_bytes = len(value) if length is None else length
        head = SHORT.pack(opcode, flags, len(key), self.first_request + request, self.direction(key) if key else 0)
        head += LONG.pack(value_bytes, 0, item_flags, once, operand)
        return pad(head + key + value)

    def ask(self, *operations: bytes, queue: int = 0):
        """The records of the answers, by the numbers of their requests."""
        self.asked = self.sequence
        self.send(REQUEST, b"".join(operations), queue=queue, count=len(operations))
        answers = {}
        while len(answers) < len(operations):
            count, body = self.receive(REPLY)
            for _ in range(count):
                _opcode, status, _, request, value_bytes, flags, cas = RECORD.unpack_from(body)
                value = body[RECORD.size : RECORD.size + value_bytes]
                answers[request - self.first_request] = status, value, flags, cas
                body = body[len(pad(bytes(RECORD.size + value_bytes))) :]
        return answers

    def store_large(self, key: bytes, value: bytes) -> None:
        operation = self.long(PUT, key, request=70, flags=DEFERRED, length=len(value))
        status, grant, *_ = self.ask(operation, queue=self.queue(key))[70]
        assert status == GRANTED
        transfer, value_bytes, size, queue, window, _ = GRANT.unpack(grant)
        assert value_bytes == len(value)
        pieces = [value[at : at + size] for at in range(0, len(value), size)]
        for index, piece in enumerate(pieces):
            is_last = index + 1 == len(pieces)
            is_acknowledged = is_last or (index + 1) % window == 0
            body = struct.pack("<QII", transfer, index, 0) + piece
            self.send(FRAGMENT, body, queue=queue, flags=ACK_WANTED if is_acknowledged else 0)
            if is_acknowledged:
                _, body = self.receive(ACK)
                assert struct.unpack_from("<QI", body) == (transfer, index + 1)
        count, body = self.receive(REPLY)
        assert count == 1 and RECORD.unpack_from(body)[1] == OK

    def fetch_large(self, key: bytes) -> bytes:
        status, grant, _, cas = self.ask(self.short(GET, key, 80), queue=self.queue(key))[80]
        assert status == LARGE
        _, value_bytes, size, queue, window, first_follows = GRANT.unpack(grant)
        count = -(-value_bytes // size)
        pieces = self.window(0, min(window, count), cas) if first_follows else []
        while len(pieces) < count:
            first = len(pieces)
            ranges = struct.pack("<II", first, min(window, count - first))
            self.asked = self.sequence
            self.send(REQUEST, self.long(FETCH, key, ranges, request=81, operand=cas), queue=queue, count=1)
            pieces += self.window(first, min(window, count - first), cas)
        return b"".join(pieces)

    def window(self, first: int, count: int, cas: int) -> list:
        pieces = []
        for index in range(first, first + count):
            _, body = self.receive(DATA)
            request, seen, _bytes, unique, _flags, _size = DATA_HEAD.unpack_from(body)
            assert (seen, unique) == (index, cas) and request - self.first_request in (80, 81)
            pieces.append(body[DATA_HEAD.size :])
        return pieces
