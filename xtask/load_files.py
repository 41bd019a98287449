"""Stores every regular file under a folder in a memcached server, by a stock client.

Keys are those of `minos bench --workload files:FOLDER`: the path below the folder, or a hash of it where the
path cannot be a key.
"""

import os
import sys

import xxhash
from pymemcache.client.base import Client


def key_of(name: bytes) -> bytes:
    if 1 <= len(name) <= 250 and all(byte > 0x20 and byte != 0x7F for byte in name):
        return name
    return b"file:" + xxhash.xxh3_128_hexdigest(name).encode()


def main() -> None:
    folder, host, port = os.fsencode(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    client = Client((host, port), no_delay=True, allow_unicode_keys=True, default_noreply=False)
    files = value_bytes = 0
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(path, name)
            if os.path.islink(file) or not os.path.isfile(file):
                continue
            with open(file, "rb") as source:
                value = source.read()
            client.set(key_of(os.path.relpath(file, folder)), value)
            files += 1
            value_bytes += len(value)
    print(f"{files} files, {value_bytes} bytes stored by pymemcache")


main()
