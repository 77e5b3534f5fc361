"""Keys, columns and drives, without the layers above them."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import toroid
from toroid import _core

HALF = ".reg x = cor:0\n.tv f unsigned = x / 2\nbootstrap f, x\nreturn x\n"


def test_programs_run_on_columns(key: _core.ClientKey, drive: _core.Drive) -> None:
    drive.put_keys(key.public_keys())
    assert drive.has_keys(key.tag)
    assert not drive.has_keys(_core.ClientKey.generate(key.params).tag)
    numbers = np.arange(16)
    drive.put_column("x", key.encrypt_column(numbers, key.message_bits))
    seen: list[tuple[str, int, int]] = []
    report = drive.map(HALF, {"x": "x"}, "y", unit=4, progress=lambda *step: seen.append(step))
    assert (report["rows"], report["input_rows"], report["computed"]) == (16, 16, 16)
    assert ("map", 16, 16) in seen
    assert key.decrypt_column(drive.get_column("y")).tolist() == (numbers // 2).tolist()
    assert key.decrypt_column(drive.get_column("y", (3, 5))).tolist() == [1, 2]
    again = drive.map(HALF, {"x": "x"}, "y", unit=4)
    assert again["computed"] == 0
    plan = drive.estimate(HALF, {"x": "x"}, "z")
    assert (plan["bootstraps"], plan["done"], plan["complete"]) == (16, 0, False)


def test_rows_and_public_keys_are_pickled_and_client_keys_are_not(key: _core.ClientKey) -> None:
    rows = key.encrypt_column([1, 2, 3], key.message_bits)
    copy = pickle.loads(pickle.dumps(rows))
    assert key.decrypt_column(copy).tolist() == [1, 2, 3]
    assert (copy.params, copy.bits, copy.signed, len(copy)) == (key.params, key.message_bits, False, 3)
    keys = key.public_keys()
    assert pickle.loads(pickle.dumps(keys)).tag == key.tag
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(key)
    data = key.dumps("a passphrase")
    assert _core.ClientKey.loads(data, "a passphrase").tag == key.tag
    with pytest.raises(toroid.PassphraseError):
        _core.ClientKey.loads(data, "another one")


def test_reprs_show_set_tag_and_rows(key: _core.ClientKey) -> None:
    assert repr(key) == f"<ClientKey: {key.params}, tag {key.tag}>"
    assert repr(key.encrypt_column([1, 2], 4)) == f"<EncryptedRows: 2 of {key.params}>"


def test_wrong_numbers_are_refused(key: _core.ClientKey) -> None:
    with pytest.raises(toroid.RangeError, match=r"outside 0\.\.=15"):
        key.encrypt_column([16], 4)
    with pytest.raises(toroid.WidthError):
        key.encrypt_column([1], 99)
    with pytest.raises(toroid.RowsError):
        key.encrypt_column([], 4)
    with pytest.raises(TypeError):
        key.encrypt_column(["one"], 4)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        key.encrypt_column(np.array([1.5]), 4)  # type: ignore[arg-type]
    with pytest.raises(toroid.ParamsError, match="tiny"):
        _core.ClientKey.generate("message99")


def test_wrong_keys_are_refused(key: _core.ClientKey, drive: _core.Drive) -> None:
    other = _core.ClientKey.generate(key.params)
    rows = key.encrypt_column([1], 4)
    with pytest.raises(toroid.KeyMismatch):
        other.decrypt_column(rows)
    drive.put_keys(key.public_keys())
    drive.put_column("x", rows)
    with pytest.raises(toroid.KeyMismatch):
        drive.append("x", other.encrypt_column([1], 4))


def test_closed_drives_and_missing_columns_are_refused(key: _core.ClientKey) -> None:
    drive = _core.Drive.temporary()
    with pytest.raises(toroid.MissingError, match="column x"):
        drive.get_column("x")
    drive.put_column("x", key.encrypt_column([1], 4))
    with pytest.raises(toroid.ExistsError):
        drive.put_column("x", key.encrypt_column([1], 4))
    with pytest.raises(toroid.RowsError):
        drive.get_column("x", (0, 2))
    with pytest.raises(toroid.ProgramError, match="line 1"):
        drive.map("nonsense\n", {"x": "x"}, "y")
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(drive)
    drive.close()
    drive.close()
    assert drive.is_closed and "closed" in repr(drive)
    with pytest.raises(toroid.ClosedError):
        drive.columns()


def test_damage_is_found(key: _core.ClientKey, tmp_path: Path) -> None:
    data = bytearray(key.encrypt_column(range(8), 4).to_bytes())
    with pytest.raises(toroid.DamagedError):
        _core.EncryptedRows.from_bytes(bytes(data[:50]))
    data[-1] ^= 1
    with pytest.raises(toroid.Error):
        key.decrypt_column(_core.EncryptedRows.from_bytes(bytes(data)))
    with pytest.raises(toroid.DamagedError):
        _core.PublicKeys.from_bytes(b"no keys")
    image = tmp_path / "drive.img"
    _core.Drive.create(image, "64MiB").close()
    with image.open("r+b") as file:
        file.write(bytes(4096))
    with pytest.raises(toroid.DriveError):
        _core.Drive.open(str(image))


def test_full_drives_say_so(tmp_path: Path) -> None:
    key = _core.ClientKey.generate("tiny")
    drive = _core.Drive.create(tmp_path / "drive.img", "16MiB")
    rows = key.encrypt_column(np.zeros(4096, np.int64), 4)
    with pytest.raises(toroid.FullError):
        for number in range(100):
            drive.put_column(f"x{number}", rows)
    assert len(drive.columns()) > 1
    drive.close()


def test_key_files(key: _core.ClientKey, tmp_path: Path) -> None:
    path = tmp_path / "client.key"
    key.save(path, "a passphrase")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(toroid.FileError):
        key.save(path, "a passphrase")
    assert _core.ClientKey.load(path, "a passphrase").tag == key.tag
    with pytest.raises(toroid.PassphraseError):
        _core.ClientKey.load(path, "another one")
    with pytest.raises(toroid.PassphraseError):
        _core.ClientKey.load(path)
    path.chmod(0o644)
    with pytest.raises(toroid.FileError, match="chmod 600"):
        _core.ClientKey.load(path, "a passphrase")
    with pytest.raises(toroid.FileError):
        _core.ClientKey.load(tmp_path / "none.key")


def test_ledgers_find_what_was_rolled_back(key: _core.ClientKey, tmp_path: Path) -> None:
    image, ledger = tmp_path / "drive.img", tmp_path / "ledger"
    drive = _core.Drive.create(image, "16MiB", ledger=ledger, client=key)
    drive.put_column("x", key.encrypt_column([1], 4))
    drive.close()
    former = image.read_bytes()
    drive = _core.Drive.open(str(image), ledger=ledger, client=key)
    drive.append("x", key.encrypt_column([2], 4))
    drive.close()
    image.write_bytes(former)
    drive = _core.Drive.open(str(image), ledger=ledger, client=key)
    with pytest.raises(toroid.UntrustedError):
        drive.get_column("x")
    drive.close()
    with pytest.raises(toroid.OptionError, match="client"):
        _core.Drive.open(str(image), ledger=ledger)
    with pytest.raises(toroid.OptionError, match="no option"):
        _core.Drive.open(str(image), nonsense=1)


def test_several_threads_use_a_drive_at_once(drive: _core.Drive) -> None:
    key = _core.ClientKey.generate("tiny")
    drive.put_keys(key.public_keys())
    drive.put_column("x", key.encrypt_column(range(16), 4))
    drive.map(HALF, {"x": "x"}, "warm")
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            drive.map(HALF, {"x": "x"}, f"y{number}", unit=8)
            assert key.decrypt_column(drive.get_column(f"y{number}")).tolist() == [x // 2 for x in range(16)]
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_runs_of_two_threads_overlap(drive: _core.Drive) -> None:
    key = _core.ClientKey.generate("tiny")
    drive.put_keys(key.public_keys())
    drive.put_column("x", key.encrypt_column(np.arange(4096) % 16, 4))
    begun, ended = threading.Event(), threading.Event()

    def short() -> None:
        begun.wait()
        drive.map(HALF, {"x": "x"}, "short", rows=(0, 8))
        ended.set()

    def report(_stage: str, _done: int, _total: int) -> None:
        begun.set()
        if ended.is_set():
            raise LookupError("the other run has ended")

    thread = threading.Thread(target=short)
    thread.start()
    try:
        # A short run that waited for this one would end after it.
        with pytest.raises(LookupError):
            drive.map(HALF, {"x": "x"}, "long", unit=8, progress=report)
    finally:
        begun.set()
        thread.join()
    assert key.decrypt_column(drive.get_column("short")).tolist() == [x // 2 for x in range(8)]


def test_threads_that_find_keys_missing_all_get_their_results(tmp_path: Path) -> None:
    image, key = str(tmp_path / "drive.img"), _core.ClientKey.generate("tiny")
    first = _core.Drive.create(image, "64MiB")
    for key_id in (0, 1):
        first.put_keys(key.public_keys(), key_id)
        first.put_column(f"x{key_id}", key.encrypt_column(range(16), 4), key_id=key_id)
    first.close()
    drive = _core.Drive.open(image)
    with ThreadPoolExecutor(20) as pool:
        # More than the drive has room for at once, of keys that the drive has in store alone.
        runs = [pool.submit(drive.map, HALF, {"x": f"x{number % 2}"}, f"y{number}", key_id=number % 2) for number in range(20)]
        for run in runs:
            run.result()
    assert all(key.decrypt_column(drive.get_column(f"y{number}")).tolist() == [x // 2 for x in range(16)] for number in range(20))
    drive.close()


def test_interrupts_end_a_run_that_goes_on_later(drive: _core.Drive) -> None:
    # A shell starts commands in the background with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    key = _core.ClientKey.generate("tiny")
    drive.put_keys(key.public_keys())
    numbers = np.arange(512) % 16
    drive.put_column("x", key.encrypt_column(numbers, 4))

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "map" and done >= 8:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        drive.map(HALF, {"x": "x"}, "y", unit=8, progress=interrupt)
    report = drive.map(HALF, {"x": "x"}, "y", unit=8)
    assert 0 < report["computed"] < 512
    assert key.decrypt_column(drive.get_column("y")).tolist() == (numbers // 2).tolist()


def test_what_progress_raises_ends_the_call(key: _core.ClientKey, drive: _core.Drive) -> None:
    def fail(*step: object) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        drive.put_keys(key.public_keys(), progress=fail)
    drive.put_keys(key.public_keys())


def test_a_call_that_ends_early_leaves_those_of_other_threads_alone(drive: _core.Drive) -> None:
    key = _core.ClientKey.generate("tiny")
    drive.put_keys(key.public_keys())
    numbers = np.arange(512) % 16
    drive.put_column("x", key.encrypt_column(numbers, 4))
    drive.map(HALF, {"x": "x"}, "warm", rows=(0, 8))
    failures: list[BaseException] = []

    def run() -> None:
        try:
            drive.map(HALF, {"x": "x"}, "y", unit=8)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    def fail(*step: object) -> None:
        raise LookupError("enough")

    thread = threading.Thread(target=run)
    thread.start()
    few = key.encrypt_column([1, 2], 4)
    while thread.is_alive():
        with pytest.raises(LookupError):
            drive.put_column("z", few, True, progress=fail)
    assert failures == []
    assert key.decrypt_column(drive.get_column("y")).tolist() == (numbers // 2).tolist()
