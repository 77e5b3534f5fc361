"""Ctrl-C during long calls: each ends with KeyboardInterrupt, leaves the drive free for others, and does what it should when it is called again."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import toroid
from toroid import col

NUMBERS = np.arange(24) % 16


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    # A shell starts commands in the background with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


@toroid.program
def successor(x: toroid.u4) -> Any:
    return x + 1


Call = Callable[[toroid.Client, toroid.Drive, Any, Any], Any]
DATA = {"x": NUMBERS.tolist(), "wide": [2**40] * len(NUMBERS)}
TYPES = {"x": "u4", "wide": "u64"}


def appended(client: toroid.Client, drive: toroid.Drive, keys: Any, progress: Any) -> None:
    drive.table("t").append(client.encrypt({"x": [1], "wide": [2]}, TYPES), progress)


CALLS: dict[str, Call] = {
    "public_keys": lambda client, drive, keys, progress: client.public_keys(progress),
    "encrypt": lambda client, drive, keys, progress: client.encrypt(DATA, TYPES, progress=progress),
    "install": lambda client, drive, keys, progress: drive.install(keys, 1, progress),
    "upload": lambda client, drive, keys, progress: drive.upload("u", client.encrypt(DATA, TYPES), progress=progress),
    "append": appended,
    "download": lambda client, drive, keys, progress: drive.table("t").download(progress=progress),
    "a program": lambda client, drive, keys, progress: successor.run(drive.table("t"), log2_failure=-40, progress=progress),
    "a sum": lambda client, drive, keys, progress: drive.table("t").agg(n=col("x").sum()).run(log2_failure=-30, progress=progress),
    "compared rows": lambda client, drive, keys, progress: drive.table("t").agg(n=col("x").max()).run(log2_failure=-30, progress=progress),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_shows_how_far_it_is_ends(client: toroid.Client, keys: Any, name: str) -> None:
    with toroid.open() as drive:
        drive.install(keys)
        drive.upload("t", client.encrypt(DATA, TYPES))
        before = drive.columns()
        with pytest.raises(KeyboardInterrupt):
            CALLS[name](client, drive, keys, interrupt)
        drive.clean()
        # A digit is appended as a whole or not at all.
        if name != "append":
            assert drive.columns() == before
            found = CALLS[name](client, drive, keys, None)
            if name == "a program":
                assert client.decrypt(found).tolist() == (NUMBERS + 1).tolist()
            if name in ("a sum", "compared rows"):
                assert client.decrypt(found, max_log2_failure=-20) == {"n": int(NUMBERS.sum() if name == "a sum" else NUMBERS.max())}


def large(x: Any, y: Any) -> Any:
    for _ in range(100):
        x, y = toroid.wrap(x * y + 1, toroid.u32), toroid.wrap(x * x - y, toroid.u32)
    return x


def test_calls_that_show_nothing_end() -> None:
    program = toroid.program(x=toroid.u32, y=toroid.u32)(large)
    rows = [2**31 + 5] * 100_000
    calls: list[Callable[[], Any]] = [
        lambda: program.compile(params="message4"),
        lambda: program.simulate(rows, rows),
    ]
    for call in calls:
        timer = threading.Timer(0.1, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            call()
        timer.join()


def test_opening_a_drive_that_does_not_answer_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def accept() -> None:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)
                interrupt()
                # Until the other side gives up.
                while connection.recv(4096):
                    pass

        thread = threading.Thread(target=accept)
        thread.start()
        place = f"nvme+tcp://127.0.0.1:{silent.getsockname()[1]}/nqn.2026-01.io.example:drive"
        with pytest.raises(KeyboardInterrupt):
            toroid.open(place)
        thread.join()
