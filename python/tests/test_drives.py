"""Drives and their tables: options, key ids, what a broken table does to others, and calls at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toroid
from toroid import col


@pytest.fixture(scope="module")
def client() -> toroid.Client:
    return toroid.Client.generate("tiny-wopbs")


@pytest.fixture(scope="module")
def keys(client: toroid.Client) -> Any:
    return client.public_keys()


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


def test_a_drive_knows_the_names_of_its_tables(client: toroid.Client, drive: toroid.Drive) -> None:
    drive.upload("staff", client.encrypt([1], (0, 15)))
    assert "staff" in drive and "other" not in drive and 0 not in drive
    assert list(drive) == ["staff"]


def test_tables_under_another_key_id_are_computed_with(client: toroid.Client, keys: Any) -> None:
    with toroid.open() as drive:
        drive.install(keys, key_id=1)
        table = drive.upload("t", client.encrypt({"x": [1, 4]}, {"x": (0, 15)}), key_id=1)
        assert (table.key_id, drive["t"].key_id) == (1, 1)
        assert client.decrypt(successor.run(table, log2_failure=-40)).tolist() == [2, 5]
        total = table.agg(total=col("x").sum()).run(log2_failure=-40)
        assert client.decrypt(total, max_log2_failure=-20) == {"total": 5}
