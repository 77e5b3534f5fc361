"""Tables over columns by ciphertexts of a ring: the keys, both ways, and what does not go by ciphertexts."""

from __future__ import annotations

import hashlib
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


@pytest.fixture(scope="module")
def kept(numbers: Any) -> Any:
    return (numbers * 7 // 3 % 2).astype(bool)


@pytest.mark.parametrize("way", ["auto", "ring"])
def test_a_run_leaves_out_rows_that_a_mask_has_0_for(
    client: toroid.Client, drive: toroid.Drive, table: toroid.Table, numbers: Any, kept: Any, way: Any
) -> None:
    stored = {"x": table.columns["x"].names[0]}
    expected = np.where(kept, numbers * 5 % 512 + 3, 0) % 512

    def rows_of(name: str) -> Any:
        # Sets for tests are noisier than those that protect something.
        found = client.decrypt(drive.core.get_column(name, None, None), max_log2_failure=-20)
        drive.delete(name)
        return np.asarray(found)

    # Of samples, with the result in the ring, in which a program on ring columns has it; lists and columns of numbers are masks, too.
    drive.run(TEXT, stored, "masked", way=way, where=kept, result="samples")
    assert rows_of("masked").tolist() == expected.tolist()
    drive.run(TEXT, stored, "in the ring", way="ring", result="ring")
    again = ".reg x = cor:0\n.tv f unsigned in=9 out=9 = x\n    bootstrap f, x\n    return x\n"
    drive.run(again, {"x": "in the ring"}, "masked", way=way, where=kept.astype(np.uint8).tolist(), result="samples")
    assert rows_of("masked").tolist() == expected.tolist()
    drive.delete("in the ring")
    # A part, with a mask of its rows; what is kept is another result than that of other rows.
    drive.run(TEXT, stored, "part", rows=(128, 260), way=way, where=kept[128:260], result="samples")
    with pytest.raises(toroid.ExistsError, match="something else than the result"):
        drive.run(TEXT, stored, "part", rows=(128, 260), way=way, where=~kept[128:260], result="samples")
    assert drive.run(TEXT, stored, "part", rows=(128, 260), way=way, where=kept[128:260], result="samples")["computed"] == 0
    assert rows_of("part").tolist() == expected[128:260].tolist()


def test_a_sum_has_nothing_of_rows_that_are_left_out(client: toroid.Client, drive: toroid.Drive, table: toroid.Table, numbers: Any, kept: Any) -> None:
    stored = {"x": table.columns["x"].names[0]}
    total = ".reg x = cor:0\n.tv f unsigned in=9 out=9 = x % 4\n    bootstrap f, x\n    homsum x, 0\n    return x\n"
    # As many rows as samples have in one piece of a ciphertext.
    drive.run(total, stored, "sum", rows=(0, 128), where=kept[:128])
    same = ".reg x = cor:0\n.tv f unsigned in=9 out=9 = x\n    bootstrap f, x\n    return x\n"
    drive.run(same, {"x": "sum"}, "in samples", result="samples")
    found = client.decrypt(drive.core.get_column("in samples", None, None), max_log2_failure=0.0)
    assert np.asarray(found).tolist() == [int((numbers % 4)[:128][kept[:128]].sum())]
    drive.delete("in samples")
    drive.delete("sum")
    # What no function is in front of would have all rows.
    for text in (".reg x = cor:0\n    homsum x, 0\n    return x\n", TEXT.replace("    return", "    homintadd x, 1\n    return")):
        with pytest.raises(toroid.Error, match="left out would not be 0.*apply one, if only of the same value"):
            drive.run(text, stored, "refused", rows=(0, 128), where=kept[:128])
    assert "refused" not in drive.columns()


def test_masks_that_are_none_are_refused(drive: toroid.Drive, table: toroid.Table, keys: Any, client: toroid.Client, kept: Any) -> None:
    stored = {"x": table.columns["x"].names[0]}
    refused: list[tuple[Any, type[Exception], str]] = [
        (kept[:-1], toroid.RowsError, "299 rows are kept or left out; the program sees 300"),
        ([], toroid.RowsError, "where has no rows"),
        ([*kept.astype(int).tolist()[:-1], 2], toroid.OptionError, "where has 2 for row 299; expected 1 for a row that counts, or 0"),
        ("x", TypeError, "which the drive sees. An encrypted column goes with where= of a program"),
        (toroid.col("x") > 3, TypeError, "which the drive sees"),
        (kept.astype(float) / 2, TypeError, "where"),
    ]
    for where, kind, words in refused:
        with pytest.raises(kind, match=words):
            drive.run(TEXT, stored, "refused", where=where)
    with pytest.raises(toroid.OptionError, match='take way="ring" or "auto"'):
        drive.run(TEXT, stored, "refused", where=kept, way="samples")
    assert "refused" not in drive.columns()
    with toroid.open() as other:
        other.install(keys)
        uploaded = other.upload("numbers", client.encrypt({"x": [1, 2]}, {"x": WHOLE}))
        with pytest.raises(toroid.Error, match="needs conversion keys"):
            other.run(TEXT, {"x": uploaded.columns["x"].names[0]}, "refused", where=[1, 0])


def test_a_ledger_knows_the_rows_that_counted(client: toroid.Client, keys: Any, tmp_path: Path, numbers: Any, kept: Any) -> None:
    bound: dict[str, Any] = {"ledger": tmp_path / "ledger", "client": client}
    with toroid.open(tmp_path / "d.img", create="256MiB", **bound) as drive:
        drive.install(keys)
        drive.install_ring_keys(client)
        table = drive.upload("numbers", client.encrypt({"x": numbers}, {"x": WHOLE}))
        stored = {"x": table.columns["x"].names[0]}
        drive.run(TEXT, stored, "all", way="ring", result="samples")
        assert "kept:" not in (tmp_path / "ledger").read_text()
        drive.run(TEXT, stored, "masked", where=kept, result="samples")

    def word_of(mask: Any) -> str:
        return "kept:" + hashlib.sha256(len(mask).to_bytes(8, "little") + np.packbits(mask, bitorder="little").tobytes()).hexdigest()

    text = (tmp_path / "ledger").read_text()
    assert text.startswith("toroid ledger 4\n")
    # Behind the program and the rows, and before the function and the column with their versions.
    lines = [line.split(" ") for line in text.splitlines() if "kept:" in line]
    assert len(lines) == 1 and lines[0][7:9] == ["rows:0..300", word_of(kept)] and [word.split(":")[0] for word in lines[0][9:]] == ["tv", "column"]
    with toroid.open(tmp_path / "d.img", **bound) as drive:
        # The same mask is the same run, and another one is not.
        assert drive.run(TEXT, stored, "masked", where=kept, result="samples")["computed"] == 0
        other = kept.copy()
        other[17] = not other[17]
        with pytest.raises(toroid.ExistsError, match="something else than the result"):
            drive.run(TEXT, stored, "masked", where=other, result="samples")
    # Nobody else writes another mask into the ledger.
    (tmp_path / "ledger").write_text(text.replace(word_of(kept), word_of(other)))
    with pytest.raises(toroid.KeyMismatch, match="is no ledger of this client key, or was changed"):
        toroid.open(tmp_path / "d.img", **bound)
