"""A server for the tests: the program named by MINOS_TEST_SERVER, or minos in the path."""

import os
import shutil
import socket
import subprocess
import time

import pytest

import minos

READY_WITHIN_S = 30.0


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server that ends with the test."""

    def __init__(self, folder, *options: str) -> None:
        program = os.environ.get("MINOS_TEST_SERVER") or shutil.which("minos")
        assert program, "name the server's program in MINOS_TEST_SERVER"
        self.address = f"127.0.0.1:{free_port()}"
        places = ["--native", self.address, "--memcached", f"unix:{folder}/socket"]
        small = ["--workers", "2", "--memory", "64m", "--poll", "sleep"]
        self.log = open(os.path.join(str(folder), "log"), "w+")
        self.process = subprocess.Popen(
            [program, "serve", *places, *small, *options], stdout=self.log, stderr=self.log
        )

    def client(self, **options) -> minos.Client:
        """A client of it, once it answers."""
        end = time.monotonic() + READY_WITHIN_S
        # A machine that does other things at the same time may be slow.
        options.setdefault("timeout", 20.0)
        while True:
            try:
                return minos.Client(self.address, **options)
            except minos.TimedOut:
                raise
            except minos.Error:
                # Nobody listens there yet.
                assert self.process.poll() is None and time.monotonic() < end, self.said()
                time.sleep(0.01)

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


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
