"""The types that the package declares."""

import os
import subprocess
import sys

TESTS = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(TESTS, "..")


def succeeds(*arguments: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=PACKAGE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert ended.returncode == 0, ended.stdout.decode()


def test_programs_and_the_package_itself_are_typed(tmp_path):
    # Unused ignores are errors, so each marked line must fail to type-check.
    succeeds(
        "mypy", "--strict", "--warn-unused-ignores", "--cache-dir", str(tmp_path), "package", "tests/typed.py"
    )


def test_the_stub_says_what_the_native_part_has():
    succeeds("mypy.stubtest", "minos")
