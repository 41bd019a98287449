"""Stores values and reads them again: python hello.py [HOST:PORT]"""

import sys

import minos


def main() -> None:
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:11311"
    with minos.Client(address) as client:
        client.set("greeting", "hello", ttl=60)
        value = client.get("greeting")
        print(value.decode() if value is not None else "it was evicted")
        client.set_many({"a": "1", "b": "2"})
        print(client.get_many(["a", "b", "c"]))


if __name__ == "__main__":
    main()
