"""Expressions of columns, in other processes: what they compute there, and what does not go there."""

from __future__ import annotations

import itertools
import operator
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import toroid
from hypothesis import given, settings
from hypothesis import strategies as st
from test_programs import NUMBERS, as_program, expressions
from toroid import col
from toroid._columns import Layout, StoredColumn

TYPES = {"x": (0, 15), "y": (-3, 6), "z": (0, 3)}


def plain_table(types: dict[str, tuple[int, int]] = TYPES) -> toroid.Table:
    """A table that is on no drive, for what needs none."""
    columns = {name: StoredColumn(Layout.of(low, high, 8, 4), (), 8, "tiny-wopbs") for name, (low, high) in types.items()}
    return toroid.Table(None, "plain", columns)  # type: ignore[arg-type]


def sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def graph_of(expression: toroid.Expr) -> str | None:
    return plain_table().select(result=expression)._plan().graph


def values_of(expression: toroid.Expr) -> list[int]:
    rows = itertools.product(*(range(low, high + 1) for low, high in TYPES.values()))
    columns = dict(zip(TYPES, map(list, zip(*rows, strict=True)), strict=True))
    return list(plain_table().select(result=expression).simulate(columns)["result"])


def look_alike(one: toroid.Expr, other: toroid.Expr) -> bool:
    return (one.name, one.place, one.columns) == (other.name, other.place, other.columns)


@given(expressions())
def test_random_expressions_come_back_as_they_were(expression: Any) -> None:
    written = expression({name: col(name) for name in TYPES})
    found = sent(written)
    assert look_alike(written, found)
    assert graph_of(written) == graph_of(found)


@toroid.table(out=toroid.u8)
def square(x: toroid.u4) -> int:
    return x * x


@toroid.table
def quotient(x: toroid.u4, y: toroid.u4) -> int:
    return x // y if y else 15


@toroid.program
def mixed(x: toroid.u8, y: Annotated[int, toroid.Range(-9, 9)]) -> Any:
    low = toroid.minimum(x, 15)
    return toroid.wrap(quotient(low, low) + square(low), toroid.u4) + (x * y).table(lambda number: number // 3) - y


def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("is_named", [True, False])
def test_expressions_come_back_with_their_tables_and_programs(monkeypatch: pytest.MonkeyPatch, is_named: bool) -> None:
    written = [
        square(col("x")) > 3,
        quotient(col("x"), 3) + quotient(2, col("z")),
        mixed(col("x"), y=col("y")),
        mixed(y=col("y"), x=col("x") + 100),
        mixed(7, col("y")) - mixed(col("z"), 1),
        col("x").table(double) + col("z").table(square) + col("x").table(operator.neg),
        col("x").isin([1, 5, 70]) & ~(col("y") < 2) | ~col("x"),
        toroid.dot([col("x"), col("y"), 3], [2, -3, 1]) + sum(toroid.matmul([[1, 2], [0, 1]], [col("x"), col("z")])),
        toroid.maximum(col("x"), col("y"), 4) - toroid.minimum(3, col("y")) + toroid.select(col("x") < 3, abs(col("y")), 1),
        toroid.wrap(col("x") * col("y"), toroid.i4) + 2**3 + (5 - col("x")) // 2,
    ]
    if not is_named:
        # Those of a script are found by nobody else.
        for made in (square, quotient, mixed):
            monkeypatch.setattr(made, "__module__", "__main__")
    for each in written:
        for found in (sent(each), sent(sent(each))):
            assert look_alike(each, found)
            assert values_of(each) == values_of(found), each


def test_aggregates_come_back() -> None:
    for result in ((square(col("x")) + 1).sum(), col("y").mean(), toroid.count()):
        found = sent(result)
        assert (found.kind, found.name) == (result.kind, result.name)
        assert result.of is None or graph_of(result.of) == graph_of(found.of)


def test_nested_expressions_come_back() -> None:
    deep = sys.getrecursionlimit() + 100
    total = col("x")
    for _ in range(deep):
        total = total + 1
    for _ in range(30):
        total = total + total - total
    found = sent(total)
    assert plain_table().select(total=found).simulate({"x": [7]})["total"].tolist() == [7 + deep]


def test_expressions_of_a_script_are_read_by_another_process(tmp_path: Path) -> None:
    written = """
import pickle, sys, toroid
from toroid import col

@toroid.table
def square(x: toroid.u4) -> toroid.u8:
    return x * x

@toroid.program
def more(x: toroid.u8, y: toroid.u4):
    return {"sum": square(toroid.minimum(x, 15)) + y}["sum"]

pickle.dump({"where": square(col("x")) > 3, "more": more(col("x"), col("y"))}, open(sys.argv[1], "wb"))
"""
    read = """
import pickle, sys, toroid
found = pickle.load(open(sys.argv[1], "rb"))
client, drive = toroid.Client.generate("tiny-wopbs"), toroid.open()
table = drive.upload("t", client.encrypt({"x": [1, 2, 3], "y": [4, 5, 6]}, {"x": "u4", "y": "u4"}))
answer = table.where(found["where"]).select(more=found["more"]).simulate({"x": [1, 2, 3], "y": [4, 5, 6]})
assert {name: column.tolist() for name, column in answer.items()} == {"more": [5, 9, 15], "where": [False, True, True]}, answer
"""
    for code in (written, read):
        (tmp_path / "script.py").write_text(code)
        subprocess.run([sys.executable, str(tmp_path / "script.py"), str(tmp_path / "expressions")], check=True)


def test_what_has_no_name_elsewhere_and_client_keys_are_not_pickled() -> None:
    client = toroid.Client.generate("tiny")
    for secret in (client.decrypt, client.key.decrypt_column, lambda number: number if client else 0):
        with pytest.raises((TypeError, pickle.PicklingError, AttributeError)):
            pickle.dumps(col("x").table(secret) > 3)
    with pytest.raises(TypeError, match="secret key and is not pickled"):
        pickle.dumps(col("x").table(client.decrypt))


@settings(max_examples=100)
@given(expressions(), NUMBERS, st.integers(0, 8), st.integers(-3, 2))
def test_recorded_programs_within_others_compute_what_they_do_alone(expression: Any, rows: list[tuple[int, int, int]], least: int, most: int) -> None:
    recorded = sent(as_program(expression))
    assert type(recorded) is toroid.GraphProgram
    # Narrower values than those of the program's inputs.
    rows = [(max(x, least), min(y, most), z) for x, y, z in rows]
    types = {"x": (least, 15), "y": (-3, most), "z": (0, 3)}
    found = plain_table(types).select(result=recorded(col("x"), col("y"), z=col("z")), x=col("x"))
    numbers = {name: list(column) for name, column in zip("xyz", zip(*rows, strict=True), strict=True)}
    assert found.simulate(numbers)["result"].tolist() == recorded(*numbers.values()).tolist()


def test_graphs_written_by_hand_are_part_of_programs() -> None:
    text = r'''
        # A comment.
        input u16: - 8 .. 7    @ "a \"quoted\" file, #1.py":12   # another
        input output: 0..3
        wrap = wrap(u16, u2)
        min = min(u16, output)
        input_ = 3*min + output - 2
        t = table(output, [ 1, -5, 7 , 9])
        t2 = table(output, t, [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14])
        s = select(output, 1, wrap)
        output a = t2
        output b = wrap
        output c = -5
        output d = input_
    '''.replace("select(output, 1, wrap)", "abs(input_)")
    by_hand = toroid.GraphProgram(text, {"u16": toroid.Range(-8, 7), "output": toroid.Range(0, 3)}, ["a", "b", "c", "d"], "by hand")

    @toroid.program
    def around(x: toroid.u2, y: toroid.u1) -> Any:
        return by_hand(x - 3, output=y + 1)

    found = around.simulate([0, 3], [0, 1])
    expected = by_hand.simulate([-3, 0], [1, 2])
    assert {name: list(column) for name, column in found.items()} == {name: list(column) for name, column in expected.items()}
    with pytest.raises(toroid.GraphError, match=r"input `u16` of the program is -8\.\.7, and the value lies in 0\.\.15"):
        toroid.program(x=toroid.u4)(lambda x: by_hand(x, 1)["a"])
    with pytest.raises(toroid.GraphError, match="is no statement of a graph"):
        wrong = toroid.GraphProgram("input x: 0..3\n?\n", {"x": toroid.Range(0, 3)}, ["y"], "by hand")
        toroid.program(x=toroid.u2)(lambda x: wrong(x))
