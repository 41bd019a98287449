"""The module against a server."""

import array
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

import minos
from minos._calls import exptime

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
    assert client.get("expiring") == b"x", "as in memcached, 0 is never"
    client.set("expiring", "x", ttl=1000.5)
    assert client.touch("expiring", 0) is True
    assert client.get_and_touch("expiring", -1) == b"x"
    assert client.get("expiring") is None
    assert client.touch("expiring", 5) is False
    client.set("expiring", "x", ttl=-0.5)
    assert client.get("expiring") is None
    with pytest.raises(ValueError):
        client.touch("expiring", float("nan"))


def test_times_to_live_are_written_as_servers_read_them():
    month = 60 * 60 * 24 * 30
    assert [exptime(ttl) for ttl in (None, 0, 0.0, -0.0, -1, 0.001, 2.1, month)] == [0, 0, 0, 0, -1, 1, 3, month]
    assert abs(exptime(month + 1) - time.time() - month - 1) < 5
    assert exptime(float("inf")) == 2**31 - 1


def test_all_items_are_dropped(start):
    with start().client() as client:
        client.set("a", "b")
        client.flush_all(1000)
        assert client.get("a") == b"b"
        client.flush_all()
        assert client.get("a") is None


def test_a_default_takes_the_place_of_what_is_missing(client):
    assert client.get("default-missing", b"x") == b"x"
    assert client.get("default-missing", default=7) == 7
    client.set("default", "")
    assert client.get("default", b"x") == b""


def test_any_iterable_and_any_bytes_are_taken(client):
    client.set_many((f"any-{i}", memoryview(b"value%d" % i)) for i in range(3))
    assert client.get_many({"any-0", "any-1"}) == {"any-0": b"value0", "any-1": b"value1"}
    assert client.get_many(f"any-{i}" for i in range(2, 4)) == {"any-2": b"value2"}
    assert client.get_many([memoryview(b"any-0"), bytearray(b"any-1")]) == {b"any-0": b"value0", b"any-1": b"value1"}
    client.set("any", array.array("B", b"abc"))
    assert client.get(memoryview(b"xany")[1:]) == b"abc"
    assert client.delete_many(key for key in ("any-0", "any-none")) == 1
    for one in ("any", b"any", memoryview(b"any")):
        with pytest.raises(TypeError):
            client.get_many(one)


def test_what_has_failed_is_told_and_what_has_not_is_there(client):
    client.set_many({"part-1": "x", "part-2": "y"})
    with pytest.raises(minos.Partial) as raised:
        client.get_many(["part-1", "", "part-2", "part-3"])
    assert raised.value.found == {"part-1": b"x", "part-2": b"y"}
    assert list(raised.value.failed) == [""] and isinstance(raised.value.failed[""], ValueError)
    with pytest.raises(minos.Partial) as raised:
        client.set_many({"part-4": "z", "part-5": bytes(65 << 20)})
    assert isinstance(raised.value.failed["part-5"], minos.TooLarge)
    assert client.get("part-4") == b"z"
    with pytest.raises(minos.Partial) as raised:
        client.delete_many(["part-1", "x" * 251])
    assert list(raised.value.failed) == ["x" * 251] and client.get("part-1") is None


def test_values_and_errors_go_to_other_processes(client):
    client.set("pickled", "x", flags=3)
    value = client.gets("pickled")
    again = pickle.loads(pickle.dumps(value))
    assert (again.bytes, again.flags, again.cas) == (value.bytes, value.flags, value.cas)
    with pytest.raises(minos.Partial) as raised:
        client.get_many(["pickled", ""])
    again = pickle.loads(pickle.dumps(raised.value))
    assert again.found == {"pickled": b"x"} and str(again) == str(raised.value)
    assert list(again.failed) == [""] and isinstance(again.failed[""], ValueError)


class Alarm(Exception):
    """Raised by the handler of a signal."""


def test_a_signal_is_handled_during_a_call(start):
    server = start()
    refused = []

    def handler(number, frame):
        # The client is in the middle of a call.
        for use in (lambda: client.get("a"), client.close):
            with pytest.raises(minos.Error) as raised:
                use()
            refused.append(str(raised.value))
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with server.client(timeout=60.0) as client:
            client.set("a", "b")
            server.pause()
            begin = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            with pytest.raises(Alarm):
                client.incr("n", initial=1)
            assert time.monotonic() - begin < 30
            server.resume()
            assert client.get("a") == b"b"
            assert len(refused) == 2 and all("signal" in text for text in refused)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_call_has_a_time_out_of_its_own(start):
    server = start()
    with server.client(timeout=60.0) as client:
        client.set("a", "b")
        server.pause()
        begin = time.monotonic()
        with pytest.raises(minos.TimedOut) as raised:
            client.get("a", timeout=1.0)
        assert time.monotonic() - begin < 30 and raised.value.was_sent is True
        server.resume()
        assert client.get("a") == b"b"


def test_what_was_never_sent_says_so():
    with pytest.raises(minos.TimedOut) as raised:
        # Nobody listens there.
        minos.Client("127.0.0.1:9", timeout=0.1)
    assert pickle.loads(pickle.dumps(raised.value)).was_sent is False


def test_a_server_that_is_stopping_is_left_for_the_next(start):
    first, second = start(), start()
    with minos.Client(f"{first.address},{second.address}", timeout=20.0) as client:
        client.set("a", "1")
        assert client.server() == first.address
        first.process.send_signal(signal.SIGTERM)
        first.process.wait()
        # Sent to a server that is gone, it may have been executed there, for all that the client knows.
        with contextlib.suppress(minos.OutcomeUnknown):
            client.set("a", "1")
        client.set("a", "2")
        assert client.server() == second.address
        assert client.counters()["failovers"] >= 1
    with second.client() as client:
        assert client.get("a") == b"2"


def test_everything_says_what_it_does():
    assert minos.__version__.count(".") == 2
    for thing in (minos.Client, minos.AsyncClient, minos.Value, minos.Partial, *minos.Error.__subclasses__()):
        assert thing.__doc__, thing
        for name, member in vars(thing).items():
            if not name.startswith("_") and callable(member):
                assert member.__doc__, name


# Words that only users of Rust know.
FOREIGN = ["u8", "u16", "u32", "u64", "i32", "usize", "f64", "integral", "Duration", "Option", "Some(", "unsigned", "PyO3"]


def test_errors_are_in_words_of_python(client):
    wrong = [
        lambda: client.get(7),
        lambda: client.get(None),
        lambda: client.set("key", None),
        lambda: client.set("key", 1.5),
        lambda: client.set("key", "x", flags=-1),
        lambda: client.set("key", "x", flags=2**32),
        lambda: client.set("key", "x", flags="1"),
        lambda: client.incr("key", -1),
        lambda: client.incr("key", 2**64),
        lambda: client.incr("key", 1.0),
        lambda: client.cas("key", "x", None),
        lambda: client.get("key", timeout=-1),
        lambda: client.get("key", timeout=float("nan")),
        lambda: client.get("key", timeout="1"),
        lambda: client.set("key", "x", ttl="1"),
        lambda: client.get_many(7),
        lambda: client.set_many(7),
        lambda: minos.Client(7),
        lambda: minos.Client("127.0.0.1:x"),
        lambda: minos.Client(timeout=-1),
        lambda: minos.Client(in_flight_max=-1),
        lambda: minos.Client(reads="any"),
        lambda: minos.Client(datagram_bytes_max=2**70),
        lambda: minos.Client(secret=7),
    ]
    for call in wrong:
        with pytest.raises((TypeError, ValueError)) as raised:
            call()
        assert not [word for word in FOREIGN if word in str(raised.value)], raised.value


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
    options = dict(datagram_bytes_max=600, in_flight_max=2, value_bytes_max=1000, all_writes_once=True, reads="uniform")
    with server.client(**options) as client:
        client.set_many({str(i): bytes(500) for i in range(100)})
        assert len(client.get_many([str(i) for i in range(100)])) == 100
        with server.client() as other:
            other.set("large", bytes(1001))
        with pytest.raises(minos.TooLarge):
            client.get("large")


def test_a_server_that_is_gone_is_noticed(start):
    server = start()
    with server.client() as client:
        client.set("a", "b")
        server.process.kill()
        server.process.wait()
        with pytest.raises(minos.Error):
            client.get("a", timeout=0.2)


def test_other_threads_run_during_a_call(start):
    server = start()
    with server.client() as client:
        # It does not answer, so that the call takes its whole time-out.
        server.pause()

        def runs():
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
                client.get("a", timeout=1.0)
            end = time.monotonic()
            is_over.set()
            thread.join()
            middle = begin + (end - begin) / 4, end - (end - begin) / 4
            return any(middle[0] < step < middle[1] for step in steps)

        # It never would if the call held the interpreter lock. The thread may get no processor for a while.
        assert any(runs() for _ in range(10))
        server.resume()


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


def test_the_example_says_hello(client, server):
    output = subprocess.run(
        [sys.executable, EXAMPLE, server.address], stdout=subprocess.PIPE, check=True
    ).stdout.decode()
    assert output == "hello\n{'a': b'1', 'b': b'2'}\n"
