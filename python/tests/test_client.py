"""Clients, tables and how they are kept."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
import toroid
from toroid import _arrow


@pytest.fixture(scope="module", params=["tiny", "tiny-wopbs"])
def client(request: pytest.FixtureRequest) -> toroid.Client:
    return toroid.Client.generate(request.param)


DATA: dict[str, Any] = {
    "u8": np.array([0, 1, 200, 255], np.uint8),
    "i8": np.array([-128, -7, 20, 127], np.int8),
    "i16": np.array([-32768, -1, 0, 32767], np.int16),
    "u64": np.array([0, 1, 2**63, 2**64 - 1], np.uint64),
    "i64": np.array([-(2**63), -5, 5, 2**63 - 1], np.int64),
    "flag": np.array([True, False, True, True]),
    "list": [3, 1, 4, 1],
}


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return list(found) == list(expected) and all(found[name].tolist() == np.asarray(values).tolist() for name, values in expected.items())


def test_tables_of_all_types_come_back(client: toroid.Client) -> None:
    table = client.encrypt(DATA)
    assert isinstance(table, toroid.EncryptedTable)
    assert same(client.decrypt(table), DATA)
    assert {name: str(column.dtype) for name, column in client.decrypt(table).items()} == {
        name: "int64" if name == "list" else str(numbers.dtype) for name, numbers in DATA.items()
    }
    assert client.decrypt(table)["flag"].dtype == np.bool_
    copy = pickle.loads(pickle.dumps(table))
    assert same(client.decrypt(copy), DATA)
    assert repr(table) == "<EncryptedTable: 7 columns, 4 rows>"


def test_data_frames_are_tables(client: toroid.Client) -> None:
    data = {"a": [1, 2, 3], "b": [-1, 0, 1]}
    for name, make in (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")):
        module = pytest.importorskip(name)
        assert same(client.decrypt(client.encrypt(getattr(module, make)(data))), data), name


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


class OnlyArrow:
    """An object of which nothing is known but that it hands out capsules."""

    def __init__(self, of: Any, method: str = "__arrow_c_stream__") -> None:
        setattr(self, method, lambda *_: getattr(of, method)())


def read(of: Any, method: str = "__arrow_c_stream__") -> Any:
    return _arrow.read(OnlyArrow(of, method), "x")


def test_arrow_columns_of_all_widths_come_in_chunks_and_with_offsets() -> None:
    for name in INTEGERS:
        info = np.iinfo(name)
        numbers = [int(info.min), int(info.max), 0, 1, 2, 3, 5, 8, 13]
        array = pyarrow.array(numbers, getattr(pyarrow, name)())
        chunked = pyarrow.chunked_array([array, array.slice(3, 4), array.slice(0, 0)])
        found = read(chunked)
        assert found.dtype == np.dtype(name)
        assert found.tolist() == numbers + numbers[3:7]
        assert read(array.slice(1, 5), "__arrow_c_array__").tolist() == numbers[1:6]
        assert read(polars.Series("x", numbers, getattr(polars, name.replace("i", "I").replace("u", "U")))).tolist() == numbers
    bits = [bool(number % 3) for number in range(40)]
    array = pyarrow.array(bits)
    assert read(array.slice(5, 30), "__arrow_c_array__").tolist() == bits[5:35]
    assert read(pyarrow.chunked_array([array.slice(9), array])).tolist() == bits[9:] + bits
    assert read(pyarrow.array([], pyarrow.int8()), "__arrow_c_array__").tolist() == []


def test_arrow_tables_are_read_with_the_rows_that_they_show(client: toroid.Client) -> None:
    data = {"a": list(range(10)), "b": [number % 2 == 0 for number in range(10)]}
    table = pyarrow.table(data)
    for frame in (table, table.to_reader(3), polars.DataFrame(data), pd.DataFrame(data)):
        found = read(frame)
        assert {name: column.tolist() for name, column in found.items()} == data
    sliced = pyarrow.RecordBatch.from_pydict(data).slice(4, 3)
    assert {name: column.tolist() for name, column in read(sliced, "__arrow_c_array__").items()} == {"a": [4, 5, 6], "b": [True, False, True]}
    struct = pyarrow.StructArray.from_arrays([pyarrow.array(data["a"]).slice(1)], names=["a"]).slice(2, 2)
    assert read(struct, "__arrow_c_array__")["a"].tolist() == [3, 4]
    encrypted = client.encrypt(OnlyArrow(table.to_reader(4)))
    assert same(client.decrypt(encrypted), data)
    assert client.decrypt(client.encrypt(pyarrow.array([1, 2, 3]))).tolist() == [1, 2, 3]
    assert client.decrypt(client.encrypt(OnlyArrow(polars.Series([4, 5])), "u16")).tolist() == [4, 5]


def test_missing_values_are_refused_with_their_row(client: toroid.Client) -> None:
    numbers = [*range(12), None, 3]
    chunked = pyarrow.chunked_array([pyarrow.array([7, 8]), pyarrow.array(numbers, pyarrow.int64()).slice(2)])
    with pytest.raises(ValueError, match="x: row 12 has no value"):
        client.encrypt({"x": chunked})
    for frame in (pyarrow.table({"x": numbers}), polars.DataFrame({"x": numbers}), pd.DataFrame({"x": pd.array(numbers, "Int64")}), pd.DataFrame({"x": numbers})):
        with pytest.raises(ValueError, match="x: row 12 has no value"):
            client.encrypt(frame)
    with pytest.raises(ValueError, match="x: row 1 has no value"):
        client.encrypt({"x": [1, None]})
    with pytest.raises(ValueError, match="row 0 has no value"):
        client.encrypt(pyarrow.array([None]))
    hidden = pyarrow.StructArray.from_arrays([pyarrow.array([1, 2])], names=["a"], mask=pyarrow.array([False, True]))
    with pytest.raises(ValueError, match="a: row 1 has no value"):
        read(hidden, "__arrow_c_array__")


def test_other_types_of_arrow_are_refused(client: toroid.Client) -> None:
    for values in ([0.5], ["a"], [[1]]):
        with pytest.raises(TypeError, match="integers or booleans"):
            client.encrypt({"x": pyarrow.array(values)})
    with pytest.raises(TypeError, match="x: a dictionary stands for its values"):
        client.encrypt({"x": pyarrow.array([1, 1]).dictionary_encode()})
    with pytest.raises(TypeError, match="x: a table of 1 columns"):
        client.encrypt({"x": pyarrow.table({"y": [1]})})

    def broken() -> Any:
        yield pyarrow.record_batch({"x": [1]})
        raise RuntimeError("no more")

    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("x", pyarrow.int64())]), broken())
    with pytest.raises(ValueError, match="no more"):
        read(reader)


class Capsules:
    """An object of which nothing but its capsule is known."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        return self._data.__arrow_c_stream__(schema)


def test_columns_of_one_name_are_refused(client: toroid.Client) -> None:
    twice = pyarrow.table([[1, 2], [3, 4]], names=["a", "a"])
    tables = [twice, Capsules(twice), pd.DataFrame([[1, 2]], columns=["a", "a"]), {1: [1], "1": [2]}]
    for table in tables:
        with pytest.raises(ValueError, match="two columns have the name [a1]"):
            client.encrypt(table)


def test_integers_that_numpy_takes_for_something_else_are_exact(client: toroid.Client) -> None:
    for values in ([2**63, 1], (2**63, 1), np.array([2**63, 1], dtype=object), [2**64 - 1, np.uint8(3)]):
        column = client.encrypt(values)
        assert client.decrypt(column).tolist() == [int(value) for value in values]
    assert client.decrypt(client.encrypt(np.array([True, -2], dtype=object))).tolist() == [1, -2]
    for wide in ([2**64, 1], [2**63, -1]):
        with pytest.raises(toroid.RangeError, match="the column: .* is wider than 64 bits"):
            client.encrypt(wide)
    with pytest.raises(TypeError, match="integers or booleans"):
        client.encrypt([2**63, 0.5])


def test_what_is_no_column_is_named(client: toroid.Client) -> None:
    things: list[Any] = [{1, 2}, (number for number in [1]), None, 5]
    for thing in things:
        with pytest.raises(TypeError, match=f"expected a list or an array, not {type(thing).__name__}"):
            client.encrypt(thing)
    with pytest.raises(TypeError, match="values of Arrow's type 'g'; a column has integers or booleans"):
        client.encrypt(Capsules(pyarrow.chunked_array([[0.5]])))
    with pytest.raises(TypeError, match="integers or booleans"):
        client.encrypt({"x": polars.Series([1, 2], dtype=polars.Int128)})
    with pytest.raises(TypeError, match="LazyFrame are still to be computed: give what its `collect` returns"):
        client.encrypt(polars.LazyFrame({"a": [1]}))


def test_types_are_kept_and_checked(client: toroid.Client) -> None:
    column = client.encrypt([1, 2, 3], "u16")
    assert isinstance(column, toroid.EncryptedColumn)
    assert (column.layout.low, column.layout.high) == (0, 65535)
    assert client.decrypt(column).dtype == np.uint16
    assert client.decrypt(client.encrypt([5, -5], (-5, 5))).tolist() == [5, -5]
    with pytest.raises(toroid.RangeError, match="row 1 is outside -5..5"):
        client.encrypt([5, -6], (-5, 5))
    with pytest.raises(TypeError, match="no type of a column"):
        client.encrypt([1], "u17")
    with pytest.raises(TypeError, match="float64"):
        client.encrypt([1.5])
    with pytest.raises(TypeError, match="dimensions"):
        client.encrypt(np.zeros((2, 2), np.int64))
    with pytest.raises(TypeError, match="integers or booleans"):
        client.encrypt(["one"])
    with pytest.raises(toroid.RowsError):
        client.encrypt([])
    with pytest.raises(ValueError, match="no column of the table"):
        client.encrypt({"a": [1]}, {"b": "u8"})
    with pytest.raises(ValueError, match="different numbers of rows: a 1, b 2"):
        client.encrypt({"a": [1], "b": [1, 2]})
    with pytest.raises(TypeError, match="nothing encrypted"):
        client.decrypt(1)


@pytest.mark.parametrize(
    ("kind", "interval", "dtype"),
    [
        ("u4", (0, 15), "int64"),
        (toroid.u4, (0, 15), "int64"),
        (toroid.u16, (0, 65535), "uint16"),
        (toroid.Range(0, 255), (0, 255), "int64"),
        ([0, 15], (0, 15), "int64"),
        ((np.int64(0), np.int64(255)), (0, 255), "int64"),
        ((0, 1), (0, 1), "int64"),
        (toroid.u1, (0, 1), "int64"),
        (np.uint8, (0, 255), "uint8"),
        (np.dtype(np.int16), (-32768, 32767), "int16"),
        ("uint8", (0, 255), "uint8"),
        (bool, (0, 1), "bool"),
        (np.bool_, (0, 1), "bool"),
        ("u64", (0, 2**64 - 1), "uint64"),
        ((0, 2**63), (0, 2**63), "uint64"),
        (None, (0, 255), "int64"),
    ],
)
def test_numbers_come_back_in_the_type_that_they_were_given(client: toroid.Client, kind: Any, interval: tuple[int, int], dtype: str) -> None:
    column = client.encrypt(np.array([1, 0, 1]), kind)
    assert isinstance(column, toroid.EncryptedColumn)
    assert (column.layout.low, column.layout.high) == interval
    found = client.decrypt(column)
    assert (str(found.dtype), found.tolist()) == (dtype, [1, 0, 1])
    with toroid.open() as drive:
        stored = drive.upload("t", column).download()
    assert str(client.decrypt(stored)["value"].dtype) == dtype


def test_types_wider_than_64_bits_and_digits_of_no_bits_are_refused(client: toroid.Client) -> None:
    for interval in ((0, 2**64), (-(2**70), 5), (-1, 2**63)):
        with pytest.raises(toroid.RangeError, match="wider than 64 bits"):
            client.encrypt([1, 2], interval)
    for bits in (-3, 0, 64):
        with pytest.raises(toroid.OptionError, match=f"digit_bits is {bits}"):
            client.encrypt([1, 2], "u32", digit_bits=bits)
    with pytest.raises(TypeError, match="no type of a column"):
        client.encrypt([1], (5, 1))


def test_tables_on_drives_are_opened_by_name_again(client: toroid.Client, tmp_path: Path) -> None:
    image = tmp_path / "drive.img"
    with toroid.open(image, create="256MiB") as drive:
        drive.install(client.public_keys())
        drive.install(client.public_keys())
        table = drive.upload("staff", client.encrypt(DATA))
        assert (table.rows, list(table.columns)) == (4, list(DATA))
        with pytest.raises(toroid.ExistsError):
            drive.upload("staff", client.encrypt(DATA))
    with toroid.open(image) as drive:
        table = drive["staff"]
        assert same(client.decrypt(table.download()), DATA)
        table.append(client.encrypt(DATA, {"list": "u8"}))
        assert len(table) == 8
        assert client.decrypt(table.download((3, 5)))["u8"].tolist() == [255, 0]
        with pytest.raises(toroid.KeyMismatch, match="another type"):
            table.append(client.encrypt(DATA, {"list": "u64"}))
        with pytest.raises(toroid.KeyMismatch, match="has the columns"):
            table.append(client.encrypt([1]))
        drive.upload("staff", client.encrypt([7, 8]), replace=True)
        assert client.decrypt(drive["staff"].download())["value"].tolist() == [7, 8]
        assert list(drive.tables()) == ["staff"]
        drive.delete("staff")
        with pytest.raises(toroid.MissingError):
            drive.table("staff")
        with pytest.raises(toroid.MissingError):
            drive.delete("staff")


def test_tables_that_lack_digits_are_refused(client: toroid.Client) -> None:
    with toroid.open() as drive:
        drive.upload("x", client.encrypt([2**40]))
        names = [name for name in drive.columns() if name.startswith("x/")]
        drive.core.delete(names[0])
        with pytest.raises(toroid.DamagedError, match="lacks digits"):
            drive.table("x")
        with pytest.raises(ValueError, match="no name"):
            drive.upload("a/b", client.encrypt([1]))
        with pytest.raises(TypeError, match="not encrypted"):
            drive.upload("y", [1])  # type: ignore[arg-type]


def test_keys_are_saved_under_a_passphrase(client: toroid.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "client.key"
    monkeypatch.delenv("TOROID_PASSPHRASE", raising=False)
    with pytest.raises(toroid.PassphraseError, match="TOROID_PASSPHRASE"):
        client.save(path)
    monkeypatch.setenv("TOROID_PASSPHRASE", "a passphrase")
    client.save(path)
    assert toroid.Client.load(path).tag == client.tag
    assert toroid.Client.loads(client.dumps("p"), "p").tag == client.tag
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(client)
    assert repr(client) == f"<Client: {client.params}, tag {client.tag}>"


def test_calls_can_be_awaited(client: toroid.Client) -> None:
    async def work() -> Any:
        with toroid.open() as drive:
            await drive.ainstall(await client.apublic_keys())
            table = await drive.aupload("x", await client.aencrypt([1, 2]))
            await table.aappend(await client.aencrypt([3]))
            return await client.adecrypt(await table.adownload())

    assert asyncio.run(work())["value"].tolist() == [1, 2, 3]


def test_progress_is_shown(client: toroid.Client, capsys: pytest.CaptureFixture[str]) -> None:
    digits = 2 * len(client.encrypt([1, 2], progress=True).digits)
    assert f"encrypt: {digits} of {digits} (100 %)" in capsys.readouterr().err
    with pytest.raises(TypeError, match="callable"):
        client.encrypt([1], progress=3)  # type: ignore[arg-type]


def test_progress_of_a_table_is_that_of_all_its_digits(client: toroid.Client) -> None:
    steps: list[tuple[str, int, int]] = []

    def taken() -> list[tuple[str, int, int]]:
        found, steps[:] = steps[:], []
        return found

    def note(*step: Any) -> None:
        steps.append(step)

    with toroid.open() as drive:
        wide = client.encrypt({"a": [2**40, 1], "b": [3, 4]}, {"b": "u32"})
        table = drive.upload("t", wide, progress=note)
        found = [taken()]
        table.append(wide, progress=note)
        found.append(taken())
        table.download(progress=note)
        found.append(taken())
    for each in found:
        (total,) = {total for _, _, total in each}
        done = [done for _, done, _ in each]
        assert done == sorted(done)
        assert done[-1] == total
        assert done.count(total) == 1


def test_masked_values_are_missing(client: toroid.Client) -> None:
    masked = np.ma.array([1, 2, 3], mask=[False, True, False])
    for data in (masked, {"x": masked}):
        with pytest.raises(ValueError, match="row 1"):
            client.encrypt(data)
    assert client.decrypt(client.encrypt(np.ma.array([1, 2], mask=False))).tolist() == [1, 2]


def test_large_numbers_come_back_with_a_sign(client: toroid.Client) -> None:
    found = client.decrypt(client.encrypt(np.array([1, 2**40])))
    assert found.dtype == np.int64
    assert (found - found[::-1]).tolist() == [1 - 2**40, 2**40 - 1]


def test_a_passphrase_is_not_left_out(client: toroid.Client, tmp_path: Path) -> None:
    with pytest.raises(toroid.OptionError, match="give one of them"):
        client.save(tmp_path / "key", "secret words", unencrypted=True)
    assert not list(tmp_path.iterdir())


def test_columns_of_different_lengths_are_refused_before_anything_is_encrypted(client: toroid.Client) -> None:
    reports: list[Any] = []
    with pytest.raises(ValueError, match="different numbers of rows: a 2, b 1"):
        client.encrypt({"a": [1, 2], "b": [1]}, progress=lambda *report: reports.append(report))
    assert not reports
    with pytest.raises(ValueError, match="at least one column"):
        client.encrypt({})
    one, two = client.encrypt([1]), client.encrypt([1, 2])
    assert isinstance(one, toroid.EncryptedColumn) and isinstance(two, toroid.EncryptedColumn)
    with pytest.raises(ValueError, match="different numbers of rows: a 1, b 2"):
        toroid.EncryptedTable({"a": one, "b": two})
    with pytest.raises(TypeError, match="column a is a int, which is not encrypted"):
        toroid.EncryptedTable({"a": 5})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="the column: its rows are of several shapes"):
        client.encrypt([[1], [1, 2]])


def test_options_of_another_type_are_refused(client: toroid.Client, tmp_path: Path) -> None:
    for bits in ("4", 2.5, 0):
        with pytest.raises(toroid.OptionError, match=rf"a message of {client.params} has 1 to \d+ bits"):
            client.encrypt([1], digit_bits=bits)  # type: ignore[arg-type]
    column = client.encrypt([1])
    for limit in ("x", None):
        with pytest.raises(TypeError, match="max_log2_failure is a number"):
            client.decrypt(column, max_log2_failure=limit)  # type: ignore[call-overload]
    with pytest.raises(toroid.OptionError, match="nothing is above or below"):
        client.decrypt(column, max_log2_failure=float("nan"))
    with pytest.raises(TypeError, match="parameter set is text, not int"):
        toroid.Client.generate(5)  # type: ignore[arg-type]
    for call in (
        lambda: client.dumps(b"secret"),  # type: ignore[arg-type]
        lambda: toroid.Client.loads(b"", b"secret"),  # type: ignore[arg-type]
        lambda: client.save(tmp_path / "k", b"secret"),  # type: ignore[arg-type]
        lambda: toroid.Client.load(tmp_path / "k", b"secret"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match="a passphrase is text, not bytes") as refused:
            call()
        assert "secret" not in str(refused.value)
