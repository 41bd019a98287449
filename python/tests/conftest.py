"""A server for the tests: the program named by MINOS_TEST_SERVER, or minos in the path."""

import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import minos

READY_WITHIN_S = 30.0


def state(path: str) -> str:
    """The state of a thread, as in proc(5)."""
    with open(path) as stat:
        return stat.read().rpartition(")")[2].split()[0]


class Server:
    """A server that ends with the test."""

    def __init__(self, folder, *options: str) -> None:
        program = os.environ.get("MINOS_TEST_SERVER") or shutil.which("minos")
        assert program, "name the server's program in MINOS_TEST_SERVER"
        places = ["--native", "127.0.0.1:0", "--memcached", f"unix:{folder}/socket-{len(os.listdir(str(folder)))}"]
        # A cache may evict from a full bucket.
        small = ["--workers", "2", "--memory", "64m", "--engine", "store", "--poll", "sleep"]
        self.log = os.path.join(str(folder), f"log-{len(os.listdir(str(folder)))}")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [program, "serve", *places, *small, *options], stdout=log, stderr=log
            )
        self.address = self.wait_for_address()

    def wait_for_address(self) -> str:
        """The address that the server prints once it listens."""
        end = time.monotonic() + READY_WITHIN_S
        while True:
            found = re.search(r"^listening on native (\S+)\n", self.said(), re.MULTILINE)
            if found:
                return found[1]
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise AssertionError(f"the server is not there; it said:\n{self.said()}")
            time.sleep(0.01)

    def client(self, **options) -> minos.Client:
        """A client of it."""
        # A busy machine may be slow.
        options.setdefault("timeout", 20.0)
        return minos.Client(self.address, **options)

    def said(self) -> str:
        with open(self.log) as log:
            return log.read()

    def pause(self) -> None:
        """Stops all its threads; they have stopped when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        tasks = f"/proc/{self.process.pid}/task"
        while not all(state(f"{tasks}/{task}/stat") == "T" for task in os.listdir(tasks)):
            time.sleep(0.001)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def start(tmp_path):
    """Starts servers with options of their own."""
    servers = []

    def start_one(*options: str) -> Server:
        servers.append(Server(tmp_path, *options))
        return servers[-1]

    yield start_one
    for server in servers:
        server.stop()


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client
