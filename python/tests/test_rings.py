"""Tables over columns by ciphertexts of a ring: the keys, both ways, and what does not go by ciphertexts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import toroid

#: All messages of the parameter set; no narrower numbers go by ciphertexts.
WHOLE = (0, 511)
TEXT = ".reg x = cor:0\n.tv f unsigned in=9 out=9 = (x * 5 + 3) % 512\n    bootstrap f, x\n    return x\n"


def value_of(x: Annotated[int, toroid.Range(*WHOLE)]) -> int:
    return (x * 5 + 3) % 512


value = toroid.table(value_of)


@toroid.program
def mixed(x: Annotated[int, toroid.Range(*WHOLE)]) -> Any:
    return value(x)


@pytest.fixture(scope="module")
def drive(client: toroid.Client, keys: Any) -> Iterator[toroid.Drive]:
    with toroid.open() as drive:
        drive.install(keys)
        found = drive.install_ring_keys(client)
        assert found["ring"] == "tiny-ring9" and found["bytes"] > found["conversion_bytes"] > 0
        yield drive


@pytest.fixture(scope="module")
def numbers() -> Any:
    # More than one ciphertext has, and a part of a chunk.
    return np.arange(300) * 37 % 512


@pytest.fixture(scope="module")
def table(client: toroid.Client, drive: toroid.Drive, numbers: Any) -> toroid.Table:
    return drive.upload("numbers", client.encrypt({"x": numbers}, {"x": WHOLE}))


def test_a_table_is_the_same_either_way(client: toroid.Client, drive: toroid.Drive, table: toroid.Table, numbers: Any) -> None:
    expected = [value_of(int(x)) for x in numbers]
    assert client.decrypt(mixed.run(table, way="ring")).tolist() == expected
    assert client.decrypt(mixed.run(table, way="ring", rows=(128, 200))).tolist() == expected[128:200]
    assert client.decrypt(mixed.run(table, way="samples", rows=(0, 3))).tolist() == expected[:3]
    # No times of sets for tests are documented, so that nothing speaks for ciphertexts.
    assert client.decrypt(mixed.run(table, rows=(0, 3))).tolist() == expected[:3]
    assert [name for name in drive.columns() if name.startswith("result")] == []


def test_a_question_goes_by_ciphertexts(client: toroid.Client, table: toroid.Table, numbers: Any) -> None:
    found = client.decrypt(table.select(y=value(toroid.col("x"))).run(way="ring"))
    assert found["y"].tolist() == [value_of(int(x)) for x in numbers]


def test_plans_and_runs_say_their_way(drive: toroid.Drive, table: toroid.Table) -> None:
    stored = {"x": table.columns["x"].names[0]}
    plan = drive.core.estimate(TEXT, stored, "planned", way="ring")
    assert (plan["way"], plan["ring"], plan["commands"]) == ("ring", "tiny-ring9", 2)
    assert "asked for" in plan["why"] and plan["seconds"] is None
    assert "no times" in drive.core.estimate(TEXT, stored, "planned")["why"]
    made = drive.run(TEXT, stored, "in the ring", way="ring", result="ring")
    assert made["ring"] == "tiny-ring9" and made["computed"] == 300
    drive.run(TEXT, {"x": "in the ring"}, "in samples", result="samples")
    assert drive.columns()["in samples"]["ring"] is None
    drive.delete("in the ring")
    drive.delete("in samples")


def test_what_does_not_go_by_ciphertexts_is_refused(client: toroid.Client, drive: toroid.Drive, table: toroid.Table, keys: Any) -> None:
    narrow = drive.upload("narrow", client.encrypt({"x": [1, 2, 3]}, {"x": (0, 15)}))

    @toroid.program
    def less(x: toroid.u4) -> Any:
        return toroid.select(x > 7, 1, 0)

    with pytest.raises(toroid.Error, match="a function of 4 bits of a message of"):
        less.run(narrow, way="ring")
    assert client.decrypt(less.run(narrow)).tolist() == [0, 0, 0]
    for call in (lambda way: mixed.run(table, way=way), lambda way: drive.core.estimate(TEXT, {}, "o", way=way)):
        with pytest.raises(toroid.OptionError, match='"auto", "samples" or "ring", not "rings"'):
            call("rings")
    with pytest.raises(toroid.OptionError, match='"samples" or "ring", not "rows"'):
        drive.run(TEXT, {}, "o", result="rows")
    with toroid.open() as other:
        other.install(keys)
        uploaded = other.upload("numbers", client.encrypt({"x": [1, 2]}, {"x": WHOLE}))
        with pytest.raises(toroid.Error, match="needs conversion keys"):
            mixed.run(uploaded, way="ring")
        with pytest.raises(toroid.OptionError, match='there is no ring "ring9"; expected one of ring8'):
            other.install_ring_keys(client, "ring9")
        with pytest.raises(toroid.OptionError, match="ring8 and tiny-wopbs: one of them is for tests"):
            other.install_ring_keys(client, "ring8")


def test_keys_of_another_client_stay(client: toroid.Client, drive: toroid.Drive) -> None:
    with pytest.raises(toroid.KeyMismatch):
        drive.install_ring_keys(toroid.Client.generate("tiny-wopbs"))


def test_a_drive_that_is_opened_anew_loads_ring_keys(client: toroid.Client, keys: Any, tmp_path: Path) -> None:
    image = tmp_path / "d.img"
    with toroid.open(image, create="256MiB") as drive:
        drive.install(keys)
        drive.install_ring_keys(client)
        drive.upload("numbers", client.encrypt({"x": [0, 1, 511]}, {"x": WHOLE}))
    with toroid.open(image) as drive:
        assert client.decrypt(mixed.run(drive["numbers"], way="ring")).tolist() == [3, 8, 510]
