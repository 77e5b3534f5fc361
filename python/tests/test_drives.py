"""Drives and their tables: options, key ids, what a broken table does to others, and calls at once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import toroid
from toroid import col
from toroid._progress import twin


@pytest.fixture
def drive(keys: Any) -> Iterator[toroid.Drive]:
    with toroid.open() as drive:
        drive.install(keys)
        yield drive


@toroid.program
def successor(x: toroid.u4) -> Any:
    return x + 1


@pytest.mark.parametrize(
    "options",
    [{"ledger": "l"}, {"read_only": True}, {"create": "1GiB"}, {"new_store": True}, {"overwrite": True}, {"concatenate": True}, {"nonsense": 3}],
)
def test_a_drive_without_a_location_has_no_options(options: dict[str, Any]) -> None:
    with pytest.raises(toroid.OptionError, match=f"{next(iter(options))} needs a location"):
        toroid.open(**options)


def test_a_client_without_a_ledger_and_sizes_that_are_none_are_refused(client: toroid.Client, tmp_path: Path) -> None:
    with pytest.raises(toroid.OptionError, match="give ledger"):
        toroid.open(tmp_path / "drive", create=True, client=client)
    with pytest.raises(toroid.OptionError, match="create=1024 is no size"):
        toroid.open(tmp_path / "drive", create=1024)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_arguments_that_name_no_input_are_refused(client: toroid.Client, drive: toroid.Drive) -> None:
    table = drive.upload("t", client.encrypt({"x": [1], "pay": [2]}, {"x": (0, 15), "pay": (0, 15)}))
    for call in (successor.run, successor.compile, successor.cost, successor.explain):
        with pytest.raises(TypeError, match="y is neither an option nor an input; inputs are x"):
            call(table, y="pay")  # type: ignore[operator]
    with pytest.raises(TypeError, match="param is neither"):
        successor.compile(param="tiny")
    with pytest.raises(TypeError, match="give the table"):
        successor.compile(x="pay")
    assert client.decrypt(successor.run(table, x="pay", log2_failure=-40)).tolist() == [3]


def test_a_table_that_lacks_digits_hides_no_other(client: toroid.Client, drive: toroid.Drive) -> None:
    drive.upload("whole", client.encrypt([1], (0, 15)))
    drive.upload("broken", client.encrypt({"a": [2**20], "b": [1]}))
    drive.core.delete(next(name for name in drive.columns() if name.startswith("broken/00")))
    assert list(drive.tables()) == ["whole"]
    with pytest.raises(toroid.DamagedError, match="column a of table broken lacks digits"):
        drive.table("broken")
    drive.upload("broken", client.encrypt([3]), replace=True)
    assert set(drive.tables()) == {"whole", "broken"}


def test_a_table_that_lacks_its_last_column_is_none(client: toroid.Client, drive: toroid.Drive) -> None:
    drive.upload("t", client.encrypt({"a": [1], "b": [2], "c": [3]}))
    drive.core.delete(next(name for name in drive.columns() if name.startswith("t/02")))
    with pytest.raises(toroid.DamagedError, match="table t lacks columns"):
        drive.table("t")
    assert "t" not in drive


def test_who_lacks_the_ledger_cannot_leave_a_column_out(client: toroid.Client, tmp_path: Path) -> None:
    bound: dict[str, Any] = {"ledger": tmp_path / "ledger", "client": client}
    with toroid.open(tmp_path / "drive", create="16MiB", **bound) as drive:
        drive.upload("t", client.encrypt({"a": [1], "b": [2]}, {"a": "u4", "b": "u4"}))
    with toroid.open(tmp_path / "drive") as cheat:
        first, second = sorted(cheat.columns())
        rows = cheat.core.get_column(first)
        for name in (second, first):
            cheat.core.delete(name)
        cheat.core.put_column(first.replace("00/2", "00/1"), rows)
        assert list(cheat["t"].columns) == ["a"]
    with toroid.open(tmp_path / "drive", **bound) as drive, pytest.raises(toroid.DamagedError, match="not what this client put there"):
        drive.table("t")


def test_a_table_that_does_not_state_its_columns_is_read(client: toroid.Client, drive: toroid.Drive) -> None:
    one = client.encrypt([7], (0, 15)).digits[0]
    for name in ("t/00 a 0..15 0/1 4u@0", "t/01 b 0..15 0/1 4u@0"):
        drive.core.put_column(name, one)
    assert {name: column.tolist() for name, column in client.decrypt(drive["t"].download()).items()} == {"a": [7], "b": [7]}


def test_a_drive_knows_the_names_of_its_tables(client: toroid.Client, drive: toroid.Drive) -> None:
    drive.upload("staff", client.encrypt([1], (0, 15)))
    assert "staff" in drive and "other" not in drive and 0 not in drive
    assert list(drive) == ["staff"]


def test_keys_of_another_client_are_replaced_on_demand_alone(client: toroid.Client, drive: toroid.Drive) -> None:
    table = drive.upload("t", client.encrypt({"x": [1]}, {"x": (0, 15)}))
    other = toroid.Client.generate("tiny-wopbs")
    with pytest.raises(toroid.KeyMismatch, match="another client key") as refused:
        drive.install(other.public_keys())
    assert "replace=True" in refused.value.__notes__[0]
    assert drive.core.has_keys(client.tag)
    assert client.decrypt(successor.run(table, log2_failure=-40)).tolist() == [2]
    drive.install(other.public_keys(), key_id=1)
    asyncio.run(drive.ainstall(other.public_keys(), replace=True))
    assert drive.core.has_keys(other.tag) and drive.core.has_keys(other.tag, 1)
    with pytest.raises(toroid.KeyMismatch, match="another client key"):
        successor.run(table, log2_failure=-40)


def test_tables_under_another_key_id_are_computed_with(client: toroid.Client, keys: Any) -> None:
    with toroid.open() as drive:
        drive.install(keys, key_id=1)
        table = drive.upload("t", client.encrypt({"x": [1, 4]}, {"x": (0, 15)}), key_id=1)
        assert (table.key_id, drive["t"].key_id) == (1, 1)
        assert client.decrypt(successor.run(table, log2_failure=-40)).tolist() == [2, 5]
        total = table.agg(total=col("x").sum()).run(log2_failure=-40)
        assert client.decrypt(total, max_log2_failure=-20) == {"total": 5}


def fails_at(place: int, error: type[BaseException]) -> Any:
    """A callable for progress that raises at its call of this number."""
    calls = iter(range(place))

    def report(*_: object) -> None:
        if next(calls, None) is None:
            raise error

    return report


def test_a_table_stays_until_its_replacement_is_complete(client: toroid.Client, drive: toroid.Drive) -> None:
    drive.upload("t", client.encrypt({"a": [1], "b": [2]}))
    wider = client.encrypt({"a": [2**20, 3], "b": [4, 5]})
    for place in range(3):
        with pytest.raises(KeyboardInterrupt):
            drive.upload("t", wider, replace=True, progress=fails_at(place, KeyboardInterrupt))
        assert client.decrypt(drive["t"].download())["a"].tolist() == [1]
        assert all(name.startswith("t/0") for name in drive.columns())
    table = drive.upload("t", wider, replace=True)
    assert client.decrypt(table.download())["a"].tolist() == [2**20, 3]
    # What somebody left who could not clean up: parts of a replacement, and parts of what was replaced.
    names = list(drive.columns())
    one = client.encrypt([7], (0, 15)).digits[0]
    drive.core.put_column("t/9.01 b 0..15 0/1 4u@0", one)
    assert client.decrypt(drive["t"].download())["b"].tolist() == [4, 5]
    drive.core.put_column("t/01 b 0..15 0/1 4u@0", one)
    assert client.decrypt(drive["t"].download())["b"].tolist() == [4, 5]
    assert set(names) < set(drive.columns())
    drive.delete("t")
    assert not drive.columns()


def test_names_of_columns_are_checked_before_anything_is_deleted(client: toroid.Client, drive: toroid.Drive) -> None:
    drive.upload("t", client.encrypt([1]))
    for name in ("", "a\nb", "x" * 300):
        with pytest.raises(ValueError, match="name"):
            drive.upload("t", client.encrypt({"a": [1], name: [2]}), replace=True)
        with pytest.raises(ValueError, match="name"):
            drive.upload("new", client.encrypt({name: [2]}))
    assert list(drive.tables()) == ["t"] and len(drive.columns()) == 1


def test_a_handle_answers_for_the_rows_that_it_states(client: toroid.Client, drive: toroid.Drive) -> None:
    before = drive.upload("t", client.encrypt({"x": [1] * 20}, {"x": (0, 15)}))
    drive["t"].append(client.encrypt({"x": [2] * 13}, {"x": (0, 15)}))
    question = before.agg(total=col("x").sum(), mean=col("x").mean())
    found = client.decrypt(question.run(log2_failure=-30), max_log2_failure=-20)
    assert found == {"total": 20, "mean": 1.0}
    assert client.decrypt(successor.run(before, log2_failure=-40)).tolist() == [2] * 20
    assert len(successor.run(drive["t"], log2_failure=-40)) == 33


def test_a_question_whose_columns_were_replaced_after_an_interruption_is_answered(
    client: toroid.Client, drive: toroid.Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = drive.upload("t", client.encrypt({"x": [1, 2]}, {"x": (0, 15)}))
    run = toroid.Drive.run

    def interrupted(*arguments: Any, **options: Any) -> Any:
        run(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(toroid.Drive, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        successor.run(table, log2_failure=-40)
    monkeypatch.setattr(toroid.Drive, "run", run)
    assert any(name.startswith("result ") for name in drive.columns())
    drive.delete("t")
    table = drive.upload("t", client.encrypt({"x": [5, 6]}, {"x": (0, 15)}))
    assert client.decrypt(successor.run(table, log2_failure=-40)).tolist() == [6, 7]
    assert not any(name.startswith("result ") for name in drive.columns())


def test_equal_questions_of_several_threads_are_answered(client: toroid.Client, drive: toroid.Drive) -> None:
    table = drive.upload("t", client.encrypt({"x": list(range(12))}, {"x": (0, 15)}))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: successor.run(table, log2_failure=-40), range(12)))
    assert all(client.decrypt(result).tolist() == list(range(1, 13)) for result in results)
    assert not any(name.startswith("result ") for name in drive.columns())


@pytest.mark.parametrize("kind", ["program", "question"])
def test_a_task_that_is_cancelled_ends_its_run(client: toroid.Client, drive: toroid.Drive, kind: str) -> None:
    table = drive.upload("t", client.encrypt({"x": [1, 2] * 100}, {"x": (0, 15)}))

    async def work() -> None:
        loop = asyncio.get_running_loop()

        def cancel(*_: object) -> None:
            loop.call_soon_threadsafe(task.cancel)
            while not task.cancelling():
                time.sleep(0.001)
            time.sleep(0.1)

        run = successor.arun(table, log2_failure=-40, progress=cancel) if kind == "program" else question.arun(log2_failure=-30, progress=cancel)
        task = asyncio.ensure_future(run)
        with pytest.raises(asyncio.CancelledError):
            await task
        # No call is running.
        drive.close()

    question = table.where(col("x") > 1).agg(total=col("x").sum())
    asyncio.run(work())
    assert drive.core.is_closed


def test_awaited_calls_give_what_the_others_give(client: toroid.Client, drive: toroid.Drive) -> None:
    table = drive.upload("t", client.encrypt({"x": [1, 2]}, {"x": (0, 15)}))
    steps: list[str] = []
    result = asyncio.run(successor.arun(table, log2_failure=-40, progress=lambda stage, *_: steps.append(stage)))
    assert client.decrypt(result).tolist() == [2, 3]
    assert "map" in steps
    with pytest.raises(TypeError, match="y is neither"):
        asyncio.run(successor.arun(table, y="x"))


def test_files_that_are_there_already_are_named_with_what_replaces_them(client: toroid.Client, tmp_path: Path) -> None:
    path = tmp_path / "drive.img"
    toroid.open(path, create="16MiB").close()
    with pytest.raises(toroid.FileError, match=r"drive\.img already.*overwrite=True"):
        toroid.open(path, create="16MiB")
    toroid.open(path, create="16MiB", overwrite=True).close()
    with pytest.raises(toroid.Error) as missing:
        toroid.open(tmp_path / "none" / "drive.img", create="16MiB")
    assert "overwrite" not in str(missing.value)
    client.save(tmp_path / "client.key", unencrypted=True)
    with pytest.raises(toroid.FileError, match=r"client\.key already.*replace=True"):
        client.save(tmp_path / "client.key", unencrypted=True)
    with pytest.raises(toroid.PassphraseError, match="empty"):
        client.dumps("")


def test_keys_that_are_none_are_refused(client: toroid.Client, drive: toroid.Drive) -> None:
    for wrong in (client, None, "keys"):
        with pytest.raises(TypeError, match="what client.public_keys"):
            drive.install(wrong)  # type: ignore[arg-type]


def test_rows_are_not_appended_to_a_table_whose_append_ended_early(client: toroid.Client, drive: toroid.Drive) -> None:
    table = drive.upload("t", client.encrypt({"x": [1000, 2000]}, {"x": "u16"}))

    def stop(_stage: str, done: int, total: int) -> None:
        # The first digit is there.
        if done > total // 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.append(client.encrypt({"x": [3000]}, {"x": "u16"}), progress=stop)
    # The object does not know it yet, and asks the drive.
    with pytest.raises(toroid.RowsError, match="an append ended early"):
        table.append(client.encrypt({"x": [4000]}, {"x": "u16"}))
    assert client.decrypt(drive["t"].download())["x"].tolist() == [1000, 2000]


def test_appends_at_once_take_turns(client: toroid.Client, drive: toroid.Drive) -> None:
    table = drive.upload("t", client.encrypt({"x": [1000]}, {"x": "u16"}))
    parts = [client.encrypt({"x": [2000 + number]}, {"x": "u16"}) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(table.append, parts))
    assert sorted(client.decrypt(drive["t"].download())["x"].tolist()) == [1000, 2000, 2001, 2002, 2003]


def test_of_two_uploads_of_a_name_at_once_each_is_whole_or_refused(client: toroid.Client, drive: toroid.Drive) -> None:
    tables = [client.encrypt({"a": [number], "b": [number]}, {"a": "u4", "b": "u4"}) for number in (1, 2)]
    for replace in (False, True):
        with ThreadPoolExecutor(2) as pool:
            calls = [pool.submit(drive.upload, f"t{replace}", table, replace=replace) for table in tables]
        refused = [call.exception() for call in calls]
        assert replace == (refused == [None, None])
        assert all(error is None or isinstance(error, toroid.ExistsError) for error in refused)
        found = client.decrypt(drive[f"t{replace}"].download())
        assert found["a"].tolist() == found["b"].tolist()


def test_a_column_that_another_session_puts_stays(client: toroid.Client, drive: toroid.Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    table = client.encrypt({"a": [1], "b": [1]}, {"a": "u4", "b": "u4"})
    drive.upload("t", table)
    # As if the table had come since.
    monkeypatch.setattr(drive, "_stored", lambda _name: {})
    with pytest.raises(toroid.ExistsError):
        drive.upload("t", table)
    monkeypatch.undo()
    assert list(drive["t"].columns) == ["a", "b"]


def test_questions_to_a_table_that_was_replaced_by_a_shorter_one_are_refused(client: toroid.Client, drive: toroid.Drive) -> None:
    table = drive.upload("t", client.encrypt({"x": [1, 9]}, {"x": (0, 15)}))
    drive.delete("t")
    drive.upload("t", client.encrypt({"x": [7]}, {"x": (0, 15)}))
    for run in (table.agg(m=col("x").mean()).run, table.select("x").run, table.sort("x").run, lambda **options: successor.run(table, **options)):
        with pytest.raises(toroid.RowsError, match="uploaded again since it was looked up"):
            run(log2_failure=-30)
    drive.upload("t", client.encrypt({"x": [7]}, {"x": (0, 15)}), replace=True)
    with pytest.raises(toroid.MissingError, match="look it up again"):
        table.agg(m=col("x").mean()).run(log2_failure=-30)


def test_a_task_that_is_cancelled_twice_still_waits_for_its_call(client: toroid.Client, drive: toroid.Drive) -> None:
    table = drive.upload("t", client.encrypt({"x": [1, 2] * 100}, {"x": (0, 15)}))

    async def work() -> None:
        loop = asyncio.get_running_loop()

        def cancel(*_: object) -> None:
            for _ in range(3):
                loop.call_soon_threadsafe(task.cancel)
            while task.cancelling() < 3:
                time.sleep(0.001)
            time.sleep(0.1)

        task = asyncio.ensure_future(successor.arun(table, log2_failure=-40, progress=cancel))
        with pytest.raises(asyncio.CancelledError):
            await task
        # No call is running.
        drive.close()

    asyncio.run(work())


def test_a_question_that_asks_itself_meanwhile_is_refused(client: toroid.Client, drive: toroid.Drive) -> None:
    table = drive.upload("t", client.encrypt({"x": [1, 2]}, {"x": (0, 15)}))
    query = table.agg(n=col("x").sum())
    with pytest.raises(toroid.BusyError, match="in this thread already"):
        query.run(log2_failure=-30, progress=lambda *_: query.run(log2_failure=-30))


def test_a_task_that_waits_its_turn_can_be_cancelled(drive: toroid.Drive) -> None:
    async def work() -> None:
        with drive.turn("table t"):
            task = asyncio.ensure_future(drive.aupload("t", data))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    data = toroid.Client.generate("tiny-wopbs").encrypt([1])
    asyncio.run(work())
    assert not drive.columns()


def test_columns_of_two_clients_make_no_table(client: toroid.Client) -> None:
    other = toroid.Client.generate("tiny-wopbs")
    columns = {"a": client.encrypt([1], "u4"), "b": client.encrypt([2], "u4"), "c": other.encrypt([3], "u4")}
    with pytest.raises(toroid.KeyMismatch, match="b and c were encrypted by two"):
        toroid.EncryptedTable(columns)  # type: ignore[arg-type]
    del columns["c"]
    assert list(toroid.EncryptedTable(columns)) == ["a", "b"]  # type: ignore[arg-type]


def test_an_append_looks_at_the_columns_once(client: toroid.Client, keys: Any) -> None:
    with toroid.open() as drive:
        table = drive.upload("t", client.encrypt({"x": [1000]}, {"x": "u16"}))
        listings: list[None] = []

        class Counting:
            def columns(self) -> Any:
                listings.append(None)
                return drive.core.columns()

            def __getattr__(self, name: str) -> Any:
                return getattr(drive.core, name)

        table.drive = toroid.Drive(Counting())  # type: ignore[arg-type]
        table.append(client.encrypt({"x": [2000, 3000]}, {"x": "u16"}))
        assert len(listings) == 1
        assert table.rows == 3
        assert client.decrypt(table.download())["x"].tolist() == [1000, 2000, 3000]


def test_a_task_that_is_cancelled_leaves_no_image(tmp_path: Path) -> None:
    path = tmp_path / "drive"

    async def work() -> None:
        task = asyncio.ensure_future(toroid.aopen(path, create="16MiB"))
        while not path.exists():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert not path.exists()
    toroid.open(path, create="16MiB").close()
    with toroid.open(path) as drive:
        assert not drive.columns()


def test_an_image_is_not_replaced_once_the_task_is_cancelled(client: toroid.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "drive"
    with toroid.open(path, create="16MiB") as drive:
        drive.upload("t", client.encrypt([1, 2]))

    def check() -> None:
        # The new image is there, beside the former one.
        if len(list(tmp_path.iterdir())) > 1:
            raise asyncio.CancelledError

    with monkeypatch.context() as patched, pytest.raises(asyncio.CancelledError):
        patched.setattr("toroid._cancel.check", check)
        asyncio.run(toroid.aopen(path, create="16MiB", overwrite=True))
    assert list(tmp_path.iterdir()) == [path]
    with toroid.open(path) as drive:
        assert client.decrypt(drive["t"].download())["value"].tolist() == [1, 2]

    async def work(seconds: float) -> None:
        task = asyncio.ensure_future(toroid.aopen(path, create="16MiB", overwrite=True))
        await asyncio.sleep(seconds)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await task).close()

    # Whenever it is cancelled, the one or the other is there as a whole.
    for seconds in (0, 0.001, 0.003, 0.01, 0.03):
        asyncio.run(work(seconds))
        assert list(tmp_path.iterdir()) == [path]
        with toroid.open(path) as drive:
            assert list(drive.tables()) in (["t"], [])


def test_text_with_surrogates_is_refused(client: toroid.Client, drive: toroid.Drive, tmp_path: Path) -> None:
    half = "a\ud800"
    for call in (
        lambda: drive.upload("u", client.encrypt({half: [1]})),
        lambda: toroid.Client.generate(half),
        lambda: toroid.open(half),
        lambda: toroid.open(f"{tmp_path}/{half}", create="16MiB"),
        lambda: toroid.open("nvme+tcp://host:1/nqn", host_nqn=half),
        lambda: drive.run(half, {"a": "b"}, "o"),
        lambda: drive.install_ring_keys(client, half),
        lambda: toroid.status(half),
    ):
        with pytest.raises(ValueError, match="surrogate") as refused:
            call()
        assert not isinstance(refused.value, UnicodeError)


def test_passphrases_with_surrogates_are_refused_and_not_shown(client: toroid.Client, tmp_path: Path) -> None:
    half = "secret\ud800"
    for call in (
        lambda: client.dumps(half),
        lambda: toroid.Client.loads(b"", half),
        lambda: client.save(tmp_path / "k", half),
        lambda: toroid.Client.load(tmp_path / "k", half),
    ):
        with pytest.raises(toroid.PassphraseError, match="surrogate") as refused:
            call()
        assert refused.value.__context__ is None and "secret" not in str(refused.value)


def test_a_folder_is_no_key_file(tmp_path: Path) -> None:
    for mode in (0o700, 0o755):
        tmp_path.chmod(mode)
        with pytest.raises(toroid.FileError, match="is a folder"):
            toroid.Client.load(tmp_path)


def test_public_keys_are_one_of_each_kind(keys: Any) -> None:
    data = keys.to_bytes()
    size = int.from_bytes(data[:8], "little")
    first, second = data[8 : 8 + size], data[8 + size :]
    for one, other in ((first, first), (second, second), (second, first)):
        with pytest.raises(toroid.DamagedError, match="no public keys"):
            toroid.PublicKeys.from_bytes(len(one).to_bytes(8, "little") + one + other)


def test_arguments_of_other_types_are_refused(client: toroid.Client, keys: Any, drive: toroid.Drive) -> None:
    column = client.encrypt([1, 2, 3])
    table = drive.upload("t", column)
    by_key_id: list[Callable[[Any], Any]] = [
        lambda key_id: drive.install(keys, key_id),
        lambda key_id: drive.upload("u", column, key_id=key_id),
        lambda key_id: drive.install_ring_keys(client, key_id=key_id),
        lambda key_id: drive.run("return x", {"x": "c"}, "o", key_id=key_id),
    ]
    by_rows: list[Callable[[Any], Any]] = [table.download, lambda rows: drive.run("return x", {"x": "c"}, "o", rows=rows)]
    for key_id, call in itertools.product((-1, 2**24, 2**40, "a", 1.5), by_key_id):
        with pytest.raises(toroid.OptionError, match="expected a number from 0 to 16777215"):
            call(key_id)
    for rows, call in itertools.product((5, (1,), (1, 2, 3), (0.0, 1), "ab"), by_rows):
        with pytest.raises(TypeError, match="expected a pair of the first row"):
            call(rows)
    with pytest.raises(TypeError, match="a dict of columns by the names of registers"):
        drive.run("return x", ["x"], "o")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'speed'"):
        drive.run("return x", {"x": "c"}, "o", speed=2)  # type: ignore[call-arg]
    for what, named in {
        "program": lambda: drive.run(5, {}, "o"),  # type: ignore[arg-type]
        "column": lambda: drive.run("return x", {"x": 5}, "o"),  # type: ignore[dict-item]
        "way": lambda: drive.run("return x", {"x": "c"}, "o", way=5),  # type: ignore[arg-type]
        "ring": lambda: drive.install_ring_keys(client, 5),  # type: ignore[arg-type]
    }.items():
        with pytest.raises(TypeError, match=f"{what} is text, not int"):
            named()
    with pytest.raises(TypeError, match="client is what toroid.Client.generate or load gives, and not a str"):
        drive.install_ring_keys("client")  # type: ignore[arg-type]


REMOTE = "nvme+tcp://127.0.0.1:1/nqn.2014-08.org.example:a"


@pytest.mark.parametrize(
    ("location", "options", "error", "message"),
    [
        (5, {}, TypeError, "location is a path or an address, not int"),
        (b"drive", {}, TypeError, "location is a path or an address, not bytes"),
        ("drive", {"create": ""}, toroid.OptionError, "`` is not a size"),
        ("drive", {"overwrite": True}, toroid.OptionError, "give create, too"),
        ("drive", {"create": False, "overwrite": True}, toroid.OptionError, "give create, too"),
        ("drive", {"ledger": "l", "client": "c"}, TypeError, "client is what toroid.Client.generate or load gives"),
        (REMOTE, {"host_nqn": 5}, toroid.OptionError, "host_nqn is text, not int"),
        (REMOTE, {"host_secret": 5}, toroid.OptionError, "host_secret is the path of a file, not int"),
        (REMOTE, {"nsid": "x"}, toroid.OptionError, "nsid is 'x'; expected the number of a namespace"),
        (REMOTE, {"nsid": -1}, toroid.OptionError, "nsid is -1"),
        (REMOTE, {"nsid": 2**40}, toroid.OptionError, "nsid is 1099511627776"),
    ],
)
def test_wrong_options_of_open_are_refused(location: Any, options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path) -> None:
    place = tmp_path / location if location == "drive" else location
    with pytest.raises(error, match=message):
        toroid.open(place, **options)
    assert not list(tmp_path.iterdir())


def test_a_namespace_in_the_environment_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOROID_NSID", "x")
    with pytest.raises(toroid.OptionError, match="TOROID_NSID is 'x'; expected the number"):
        toroid.open(REMOTE)


def test_what_is_to_be_awaited_needs_a_loop() -> None:
    call = toroid.aopen()
    with pytest.raises(RuntimeError, match="no running event loop"):
        call.send(None)


def test_what_nobody_gets_is_discarded_before_the_task_ends() -> None:
    discarded: list[str] = []
    ended = threading.Event()

    def made() -> str:
        ended.wait()
        return "drive"

    def discard(result: str) -> None:
        time.sleep(0.05)
        discarded.append(result)
        raise OSError("it cannot be removed")

    async def work() -> None:
        task = asyncio.ensure_future(twin(made, discard)())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.01)
        ended.set()
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert discarded == ["drive"]

    asyncio.run(work())
