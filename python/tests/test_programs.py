"""Functions as programs: recorded, computed in clear, refused, and run on encrypted rows."""

from __future__ import annotations

import copy
import operator
import pickle
from pathlib import Path
from typing import Annotated, Any

import hypothesis.strategies as st
import numpy as np
import pytest
import toroid
from hypothesis import given, settings
from toroid import col

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=200)
settings.load_profile("ci")


@pytest.fixture(scope="module", params=["tiny", "tiny-wopbs"])
def place(request: pytest.FixtureRequest) -> Any:
    client = toroid.Client.generate(request.param)
    with toroid.open() as drive:
        drive.install(client.public_keys())
        yield client, drive


def test_a_table_is_the_function_on_every_value() -> None:
    @toroid.table(out=toroid.u8)
    def score(x: toroid.i4) -> int:
        for limit, value in {-4: 200, 0: 100}.items():
            if x < limit:
                return value
        return x * x

    assert score.entries == [200] * 4 + [100] * 4 + [x * x for x in range(8)]
    assert [score(x) for x in (-8, -1, 7)] == [200, 100, 49]
    with pytest.raises(ValueError, match=r"-8\.\.7, not 8"):
        score(8)


def test_booleans_of_numpy_are_numbers() -> None:
    @toroid.table
    def large(x: toroid.u4) -> int:
        return np.log2(x + 1) > 3  # type: ignore[return-value]

    @toroid.program
    def chosen(x: toroid.u1) -> Any:
        return toroid.select(x == 1, np.True_, 5)

    assert [large(7), large(8)] == [0, 1]
    assert chosen.simulate(np.array([True, False])).tolist() == [1, 5]


def test_a_table_of_two_arguments() -> None:
    @toroid.table
    def quotient(x: toroid.u4, y: toroid.u4) -> int:
        return x // y if y else 15

    @toroid.program
    def both(a: toroid.u4, b: toroid.u2):
        return quotient(a, b + 1)

    assert quotient(9, 2) == 4
    # The value b + 1 is 1..4, a part of the table's second argument.
    assert both(9, 1) == 4
    columns = np.arange(16)
    assert both.simulate(columns, np.full(16, 2)).tolist() == [x // 3 for x in range(16)]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: 12 // (3 - x) if x < 4 else 0, ["raises ZeroDivisionError"]),
        (lambda x: x / 2, ["gives float, not an integer"]),
        (lambda x: 300 if x == 7 else 0, ["(7) is 300, outside 0..255"]),
    ],
)
def test_tables_that_give_no_number_are_refused(function: Any, words: list[str]) -> None:
    def typed(x: toroid.u4) -> toroid.u8:
        return function(x)

    with pytest.raises(toroid.GraphError) as caught:
        _ = toroid.table(typed).entries
    for word in [*words, "test_programs.py:"]:
        assert word in str(caught.value)


def test_wide_tables_and_missing_types_are_refused() -> None:
    with pytest.raises(toroid.GraphError, match="4294967296 values"):

        @toroid.table
        def wide(x: toroid.u32) -> int:
            return x

    with pytest.raises(toroid.GraphError, match="argument `x` needs a type"):

        @toroid.table
        def untyped(x):  # type: ignore[no-untyped-def]
            return x

    with pytest.raises(toroid.GraphError, match="one argument or two"):

        @toroid.table
        def three(x: toroid.u2, y: toroid.u2, z: toroid.u2) -> int:
            return x + y + z


def branch(x: Any) -> Any:
    if x > 3:  # the line that errors name
        return 1
    return 0


WRONG = {
    "if": (branch, "toroid.select"),
    "int": (lambda x: int(x), "integer"),
    "float": (lambda x: float(x), "integers"),
    "index": (lambda x: [1, 2, 3][x], "table"),
    "/": (lambda x: x / 2, "use //"),
    "1 / x": (lambda x: 1 / x, "use a table"),
    "7 // x": (lambda x: 7 // x, "known to everybody"),
    "x // x": (lambda x: x // x, "known to everybody"),
    "x // 0": (lambda x: x // 0, "positive"),
    "1.5 * x": (lambda x: x * 1.5, "integers"),
    "text": (lambda x: x + "1", "not with str"),
    "iterate": (lambda x: list(x), "no elements"),
    "nothing": (lambda x: None, "returns nothing"),
    "**": (lambda x: x**0, "at least 1"),
    "overflow": (lambda x: x**60, "2^100"),
    "wide table": (lambda x: (x << 20).table(lambda v: v), "65536 entries"),
    "short table": (lambda x: x.table([1, 2]), "entries"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs_are_refused_with_their_line(name: str) -> None:
    function, words = WRONG[name]

    def typed(x: toroid.u8) -> Any:
        return function(x)

    with pytest.raises(toroid.GraphError) as caught:
        toroid.program(typed)
    assert words in str(caught.value), caught.value
    # The line of the operation, or of the function that returns nothing.
    line = function.__code__.co_firstlineno + (1 if function is branch else 0)
    expected = typed.__code__.co_firstlineno if name == "nothing" else line
    assert f"test_programs.py:{expected}" in str(caught.value.line), caught.value.line


OPERATIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "min": toroid.minimum,
    "max": toroid.maximum,
}
BY_CONSTANTS = {"//": operator.floordiv, "%": operator.mod, "<<": operator.lshift, ">>": operator.rshift}


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> Any:
    """A function of x, y and z, written with operations that work on numbers and on encrypted values alike."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from(["x", "y", "z"]))
        return lambda values: values[name]
    kind = draw(st.sampled_from(["binary", "constant", "unary", "number", "select", "wrap"]))
    first = draw(expressions(depth - 1))
    if kind == "binary":
        apply, second = draw(st.sampled_from(sorted(OPERATIONS))), draw(expressions(depth - 1))
        return lambda values: OPERATIONS[apply](first(values), second(values))
    if kind == "constant":
        apply, number = draw(st.sampled_from(sorted(BY_CONSTANTS))), draw(st.integers(1, 6))
        return lambda values: BY_CONSTANTS[apply](first(values), number)
    if kind == "number":
        apply, number = draw(st.sampled_from(sorted(OPERATIONS))), draw(st.integers(-9, 9))
        return lambda values: OPERATIONS[apply](first(values), number)
    if kind == "unary":
        apply_one = draw(st.sampled_from([operator.neg, operator.invert, abs]))
        return lambda values: apply_one(first(values))
    if kind == "wrap":
        width = draw(st.sampled_from([toroid.u4, toroid.i4, toroid.u8]))
        return lambda values: toroid.wrap(first(values), width)
    second, third = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    return lambda values: toroid.select(first(values) < 5, second(values), third(values))


Small = Annotated[int, toroid.Range(-3, 6)]


def as_program(expression: Any) -> Any:
    @toroid.program
    def typed(x: toroid.u4, y: Small, z: toroid.u2) -> Any:
        return expression({"x": x, "y": y, "z": z})

    return typed


NUMBERS = st.lists(st.tuples(st.integers(0, 15), st.integers(-3, 6), st.integers(0, 3)), min_size=1, max_size=6)


@given(expressions(), NUMBERS)
def test_random_expressions_in_clear(expression: Any, rows: list[tuple[int, int, int]]) -> None:
    program = as_program(expression)
    columns = [list(column) for column in zip(*rows, strict=True)]
    found = program.simulate(*columns)
    assert list(found) == [int(expression(dict(zip("xyz", row, strict=True)))) for row in rows]


@settings(max_examples=20)
@given(expressions(2), NUMBERS)
def test_random_expressions_on_encrypted_rows(place: Any, expression: Any, rows: list[tuple[int, int, int]]) -> None:
    client, drive = place
    program = as_program(expression)
    x, y, z = (np.array(column) for column in zip(*rows, strict=True))
    types = {"x": (0, 15), "y": (-3, 6), "z": (0, 3)}
    table = drive.upload("random", client.encrypt({"x": x, "y": y, "z": z}, types), replace=True)
    try:
        result = program.run(table, log2_failure=-40)
    except toroid.GraphError as error:
        # Numbers without an encrypted part need no drive; what a set for tests cannot hold is refused with a reason.
        assert "set" in str(error) or "input" in str(error), error
        return
    assert client.decrypt(result).tolist() == program.simulate(x, y, z).tolist()
    assert len(drive.columns()) == 3 * 1 or all(not name.startswith("result ") for name in drive.columns())


def test_several_results_of_encrypted_rows(place: Any) -> None:
    client, drive = place

    @toroid.program
    def several(x: toroid.u4, y: toroid.u4):
        return {"small": toroid.minimum(x, y), "less": x < y, "sum": x + y}

    x, y = np.arange(16, dtype=np.uint8), np.arange(16, dtype=np.uint8)[::-1].copy()
    table = drive.upload("pair", client.encrypt({"first": x, "second": y}, {"first": (0, 15), "second": (0, 15)}), replace=True)
    with pytest.raises(toroid.MissingError, match="no column x"):
        several.run(table)
    result = several.run(table, x="first", y="second", log2_failure=-64)
    found = client.decrypt(pickle.loads(pickle.dumps(result)))
    expected = several.simulate(x, y)
    assert {name: column.tolist() for name, column in found.items()} == {name: column.tolist() for name, column in expected.items()}
    part = several.run(table, rows=(3, 7), x="first", y="second", log2_failure=-64)
    assert client.decrypt(part)["small"].tolist() == expected["small"][3:7].tolist()
    other = toroid.Client.generate(client.params)
    with pytest.raises(toroid.KeyMismatch):
        other.decrypt(result)


def test_programs_and_tables_are_pickled_by_name_or_by_what_they_compute(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client, drive = place
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import named_programs

    for named in (named_programs.square, named_programs.squares):
        assert pickle.loads(pickle.dumps(named)) is named
        assert copy.deepcopy(named) is named

    @toroid.table(out=toroid.u8)
    def double(x: toroid.u4) -> int:
        return 2 * x

    local = pickle.loads(pickle.dumps(double))
    assert local.entries == double.entries
    assert repr(local) == repr(double)
    assert local(5) == 10
    with pytest.raises(ValueError, match=r"argument `x` of double is 0\.\.15, not 16"):
        local(16)

    @toroid.program
    def sums(x: toroid.u4, y: toroid.u4):
        return {"sum": double(x) + y}

    found = pickle.loads(pickle.dumps(sums))
    assert copy.copy(sums) is copy.deepcopy(sums) is sums
    assert copy.copy(double) is copy.deepcopy(double) is double
    x, y = np.arange(16), np.arange(16)[::-1].copy()
    assert found.text == sums.text
    assert found.simulate(x, y)["sum"].tolist() == (2 * x + y).tolist()
    table = drive.upload("pickled", client.encrypt({"x": x, "y": y}, {"x": toroid.u4, "y": toroid.u4}), replace=True)
    assert client.decrypt(found.run(table, log2_failure=-30))["sum"].tolist() == (2 * x + y).tolist()


@pytest.mark.parametrize("asked", [1, 0.5, float("nan"), float("-inf")])
def test_what_is_no_failure_probability_is_refused(place: Any, asked: float) -> None:
    client, drive = place
    program = toroid.program(x=toroid.u4)(lambda x: x + 1)
    table = drive.upload("asked", client.encrypt({"x": np.arange(4)}, {"x": toroid.u4}), replace=True)
    sums, least = table.agg(n=toroid.col("x").sum()), table.agg(least=toroid.col("x").min())
    for call in (program.compile, program.cost, sums.compile, least.compile):
        with pytest.raises(toroid.OptionError, match="log2_failure is a finite number of at most 0"):
            call(log2_failure=asked)
    for call in (sums.run, least.run):
        with pytest.raises(toroid.OptionError, match="log2_failure is a finite number of at most 0"):
            call(log2_failure=asked)
    with pytest.raises(TypeError, match="log2_failure is a number, not '-30'"):
        program.compile(log2_failure="-30")  # type: ignore[arg-type]


def test_rows_that_a_table_lacks_are_refused_by_its_name(place: Any) -> None:
    client, drive = place
    program = toroid.program(x=toroid.u4)(lambda x: x + 1)
    table = drive.upload("few", client.encrypt({"x": np.arange(4)}, {"x": toroid.u4}), replace=True)
    for rows in ((2, 1), (1, 1), (0, 5), (-1, 2)):
        for call in (lambda rows: program.run(table, rows=rows, log2_failure=-30), table.download):
            with pytest.raises(toroid.RowsError, match=rf"table few has the rows 0\.\.4, and not {rows[0]}\.\.{rows[1]}"):
                call(rows)
    with pytest.raises(TypeError):
        table.download((0.0, 2))  # type: ignore[arg-type]
    part = table.download((np.int64(1), np.int64(3)))
    assert client.decrypt(part)["x"].tolist() == [1, 2]
    assert client.decrypt(program.run(table, rows=(np.int64(1), np.int64(3)), log2_failure=-30)).tolist() == [2, 3]


def test_arguments_may_be_wider_than_columns(place: Any) -> None:
    client, drive = place

    @toroid.program
    def square(x: toroid.u16):
        return x * x

    table = drive.upload("narrow", client.encrypt({"x": [1, 3]}, {"x": (0, 3)}), replace=True)
    assert client.decrypt(square.run(table)).tolist() == [1, 9]
    assert "input x, 0..3" in square.explain(table)


def test_programs_read_no_more_columns_than_a_run_takes() -> None:
    @toroid.program
    def less(x: toroid.u64, y: toroid.u64):
        return x < y

    with pytest.raises(toroid.GraphError, match="reads 64 columns of digits, and a run takes 63: `x` 32, `y` 32"):
        less.compile(params="message4")
    assert less.compile(params=["message4", "message8"]).params == "message8"


def test_columns_that_exceed_the_type_of_an_argument_are_refused(place: Any) -> None:
    client, drive = place

    @toroid.program
    def narrow(x: toroid.u2):
        return x + 1

    table = drive.upload("wide", client.encrypt({"x": [1, 9]}, {"x": (0, 15)}), replace=True)
    with pytest.raises(toroid.GraphError, match=r"argument `x` is 0\.\.3, and column x has numbers in 0\.\.15"):
        narrow.run(table)


def test_costs_and_alternatives() -> None:
    @toroid.program
    def less(x: toroid.u16, y: toroid.u16):
        return x < y

    compiled = less.compile(params=["message16", "message8", "message4"])
    assert set(compiled.alternatives) == {"message16", "message8", "message4"}
    costs = [cost for cost in compiled.alternatives.values() if isinstance(cost, toroid.Cost)]
    assert compiled.cost.seconds_per_row == min(cost.seconds_per_row for cost in costs)
    assert compiled.cost.log2_failure <= -128
    assert compiled.cost.bootstraps >= 1
    assert ".reg" in compiled.program
    text = less.explain(params=["message16", "message8"])
    for words in ["x < y", "cost: ", "message8: ", "input x, 0..65535", "output result", compiled.program[:20]]:
        assert words in text
    with pytest.raises(toroid.GraphError, match="message17"):
        less.compile(params="message17")


def test_dot_products_and_matrices() -> None:
    @toroid.program
    def layer(x: toroid.u4, y: toroid.u4):
        first, second = toroid.matmul([[1, -2], [3, 0]], [x, y])
        return first, second, toroid.dot([x, y, 1], [0, 1, 7])

    found = layer.simulate(np.array([1, 2]), np.array([3, 15]))
    assert {name: column.tolist() for name, column in found.items()} == {"result0": [-5, -28], "result1": [3, 6], "result2": [10, 22]}


def test_tables_by_dictionaries_have_an_entry_for_each_value() -> None:
    squares = toroid.program(x=toroid.u4)(lambda x: x.table({number: number**2 for number in range(16)}))
    assert squares.simulate([2, 3, 4]).tolist() == [4, 9, 16]
    with pytest.raises(toroid.GraphError, match="no entry for 3"):
        toroid.program(x=toroid.u4)(lambda x: x.table({0: 1, 1: 2, 2: 3}))
    with pytest.raises(TypeError, match="a set have none"):
        toroid.program(x=toroid.u4)(lambda x: x.table(set(range(16))))


def test_conditions_that_are_no_bit_are_refused() -> None:
    assert [toroid.select(condition, 5, 7) for condition in (True, 0, np.uint8(1))] == [5, 7, 5]
    with pytest.raises(toroid.GraphError, match="0 or 1, and not 5"):
        toroid.select(5, 1, 2)
    with pytest.raises(toroid.GraphError, match="not with str"):
        toroid.program(x=toroid.u4)(lambda x: toroid.select("no", x, 2))


def test_the_largest_of_a_list_is_refused() -> None:
    with pytest.raises(toroid.GraphError, match="not with list"):
        toroid.maximum([3, 5])  # type: ignore[arg-type]
    with pytest.raises(toroid.GraphError, match="not with list"):
        toroid.program(x=toroid.u4)(lambda x: toroid.maximum([x, 3]))


def test_programs_within_programs_take_what_their_types_have() -> None:
    @toroid.program
    def inner(x: toroid.u4, times: toroid.u2 = 1) -> Any:
        return x * times, x + 1

    outer = toroid.program(x=toroid.u4)(lambda x: sum(inner(x, times=3)))
    assert outer.simulate(5) == 15 + 6
    with pytest.raises(toroid.GraphError, match="argument `x` of inner is"):
        toroid.program(x=toroid.u8)(lambda x: sum(inner(x)))
    with pytest.raises(toroid.GraphError, match="argument `times` of inner is"):
        toroid.program(x=toroid.u4)(lambda x: sum(inner(x, times=4)))


@pytest.mark.parametrize("name", ["rows", "table", "params", "progress", "way", "where"])
def test_arguments_that_hide_options_are_refused(name: str) -> None:
    function = eval(f"lambda {name}: {name} + 1")
    with pytest.raises(toroid.GraphError, match=f"`{name}` has the name of an option"):
        toroid.program(**{name: toroid.u4})(function)


def test_a_number_that_is_too_large_is_refused_with_its_line() -> None:
    with pytest.raises(toroid.GraphError, match=r"test_programs\.py:\d+: a number exceeds 2\^100") as refused:

        @toroid.program
        def scaled(x: toroid.u4) -> Any:
            return x * 2**120

    assert refused.value.line is not None and "test_programs.py" in refused.value.line


def test_what_is_refused_is_no_part_of_a_program() -> None:
    @toroid.program
    def tried(x: toroid.u4) -> Any:
        with pytest.raises(toroid.GraphError, match="exceed"):
            x * 2**90 * 2**10
        return x + 1

    assert tried(3) == 4


def test_a_loop_of_thousands_of_operations_is_a_program() -> None:
    square = toroid.table(lambda_of_4_bits)

    @toroid.program
    def chain(x: toroid.u4) -> Any:
        for _ in range(1000):
            x = square((x + 1) % 16)
        return x

    expected = 5
    for _ in range(1000):
        expected = lambda_of_4_bits((expected + 1) % 16)
    assert chain(5) == expected


def lambda_of_4_bits(x: toroid.u4) -> int:
    return x * x % 16


def test_functions_that_give_no_number_when_they_are_called_are_refused() -> None:
    async def waits(x: toroid.u4) -> int:
        return x

    def yields(x: toroid.u4) -> Any:
        yield x

    for function in (waits, yields):
        for decorate in (toroid.table, toroid.program):
            with pytest.raises(toroid.GraphError, match="give an ordinary function"):
                decorate(function)


def test_arguments_that_go_by_name_alone_have_their_places() -> None:
    @toroid.table
    def difference(*, x: toroid.u4, y: toroid.u4) -> int:
        return x - y

    assert difference(x=5, y=2) == difference(y=2, x=5) == 3

    @toroid.program
    def twice(x: toroid.u4, *, y: toroid.u4) -> Any:
        return 2 * difference(y=y, x=x)

    assert twice(5, y=2) == 6
    for wrong, message in (
        (lambda: difference(x=5), "lacks its argument y"),
        (lambda: difference(5, 2, 1), "takes 2 arguments, not 3"),
        (lambda: difference(5, x=2), "given twice"),
        (lambda: twice(5, z=2), "no argument z"),
    ):
        with pytest.raises(TypeError, match=message):
            wrong()


@toroid.program
def raised(x: toroid.u4, by: toroid.u4 = 3) -> Any:
    return x + by


@toroid.table
def shifted(x: toroid.u4, by: toroid.u2 = 1) -> int:
    return x << by


def test_defaults_hold_unless_a_column_is_named(client: toroid.Client, keys: Any) -> None:
    assert raised(4) == raised.simulate(4) == 7 and raised(4, 5) == 9
    assert shifted(4) == 8 and shifted(4, by=2) == 16
    assert raised.simulate([1, 2]).tolist() == [4, 5]

    @toroid.program
    def both(x: toroid.u4) -> Any:
        return raised(x) + shifted(x)

    assert both(4) == 15
    anonymous = pickle.loads(pickle.dumps(toroid.GraphProgram(raised.text, raised.inputs, raised.outputs, "by hand", {"by": 3})))
    with toroid.open() as drive:
        drive.install(keys)
        table = drive.upload("t", client.encrypt({"x": [1, 4], "by": [0, 1]}, {"x": "u4", "by": "u4"}))
        for program in (raised, anonymous):
            assert client.decrypt(program.run(table, log2_failure=-40)).tolist() == [4, 7]
            assert client.decrypt(program.run(table, by="by", log2_failure=-40)).tolist() == [1, 5]
        assert "by" not in raised.explain(table, log2_failure=-40).split("cost:")[0]
        assert client.decrypt(table.select(y=shifted(col("x"))).run(log2_failure=-40))["y"].tolist() == [2, 8]


def test_defaults_that_are_no_numbers_of_their_types_are_refused() -> None:
    with pytest.raises(toroid.GraphError, match="argument `k` is 0..15, and its default is 16"):

        @toroid.program
        def large(x: toroid.u4, k: toroid.u4 = 16) -> Any:
            return x + k

    with pytest.raises(toroid.GraphError, match="its default is None"):

        @toroid.table
        def none(x: toroid.u4, k: toroid.u4 = None) -> int:  # type: ignore[assignment]
            return x


def test_options_of_compile_are_none_of_run(client: toroid.Client, keys: Any) -> None:
    with toroid.open() as drive:
        drive.install(keys)
        table = drive.upload("t", client.encrypt({"x": [1]}, {"x": "u4"}))
        with pytest.raises(TypeError, match="params is neither an option nor an input"):
            raised.run(table, params="message4")


def test_results_have_the_type_of_what_they_may_be() -> None:
    @toroid.program
    def same(x: toroid.u64) -> Any:
        return x

    @toroid.program
    def split(x: toroid.u64) -> Any:
        return {"high": x >> 32, "all": x}

    for numbers in ([1, 2], [1, 2**64 - 1]):
        found = same.simulate(numbers)
        assert found.dtype == np.uint64 and found.tolist() == numbers
        assert split.simulate(numbers)["high"].dtype == np.int64


def test_ends_of_ranges_are_integers() -> None:
    assert toroid.Range(np.int8(-3), True) == toroid.Range(-3, 1)  # type: ignore[arg-type]
    for low, high, message in ((0, 2.5, "high is 2.5"), ("a", 3, "low is 'a'")):
        with pytest.raises(TypeError, match=message):
            toroid.Range(low, high)  # type: ignore[arg-type]


def test_numbers_that_are_none_are_named_with_their_argument_and_row() -> None:
    for number in (1.5, float("nan"), None, "a", {"x": 1}):
        for call in (raised, shifted):
            with pytest.raises(TypeError, match="argument `x`.* is .*; expected an integer or a boolean"):
                call(number)
    for column in ([1, 2.5], np.array([1.0, 2.0]), np.zeros((2, 2), int), [[1], [1, 2]]):
        with pytest.raises(TypeError, match=r"argument `x`: the number in row [01] is"):
            raised.simulate(column)


def test_programs_run_on_tables_of_drives() -> None:
    for wrong in ({"x": [1]}, "t", None):
        with pytest.raises(TypeError, match="runs on a table of a drive"):
            raised.run(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not on a dict"):
        raised.compile({"x": [1]})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="params is the name of a parameter set"):
        raised.compile(params=5)  # type: ignore[arg-type]


def test_what_is_no_function_is_refused() -> None:
    def unknown(x: toroid.nothing) -> int:  # type: ignore[name-defined]
        return 0

    def no_code(x: toroid.u4) -> int:
        return 0

    no_code.__annotations__["x"] = "toroid.("
    for decorate in (toroid.table, toroid.program):
        for wrong in (5, "x", [1]):
            with pytest.raises(TypeError, match="made of functions"):
                decorate(wrong)  # type: ignore[call-overload]
        for function in (unknown, no_code, int):
            with pytest.raises(toroid.GraphError, match="cannot be read"):
                decorate(function)


def test_a_loop_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toroid._trace.MAX_OPERATIONS", 1000)
    with pytest.raises(toroid.GraphError, match="at most 1000 operations") as refused:

        @toroid.program
        def endless(x: toroid.u4) -> Any:
            while True:
                x = (x + 1) % 16

    assert refused.value.line is not None and "test_programs.py" in refused.value.line
    assert "a loop that does not end" in str(refused.value.help)


def test_lists_of_other_lengths_and_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="1 values and 2 weights"):
        toroid.dot([1], [1, 2])
    with pytest.raises(TypeError, match="a matrix is a list of rows"):
        toroid.matmul([1, 2], [1, 2])  # type: ignore[list-item]
    with pytest.raises(toroid.GraphError, match="there is no max of no values"):
        toroid.maximum()


@pytest.fixture(scope="module")
def masked(client: toroid.Client, keys: Any) -> Any:
    with toroid.open() as drive:
        drive.install(keys)
        data = {"x": [3, 7, 15, 0, 9], "by": [2, 0, 1, 3, 3], "kept": [1, 0, 1, 1, 0], "dept": [0, 1, 2, 3, 0]}
        yield data, drive.upload("t", client.encrypt(data, {"x": "u4", "by": "u2", "kept": "u1", "dept": "u2"}))


def test_results_are_0_in_rows_that_an_encrypted_mask_leaves_out(client: toroid.Client, masked: Any) -> None:
    data, table = masked
    x, kept, dept = (np.array(data[name]) for name in ("x", "kept", "dept"))
    loose: dict[str, Any] = {"log2_failure": -30}

    def found(program: Any, **options: Any) -> Any:
        return client.decrypt(program.run(table, **loose, **options), max_log2_failure=-20)

    assert found(raised, where="kept").tolist() == ((x + 3) * kept).tolist()
    assert found(raised, where="kept", rows=(1, 4)).tolist() == ((x + 3) * kept)[1:4].tolist()
    assert found(raised, where=col("dept") != 0, by="by").tolist() == np.where(dept != 0, x + np.array(data["by"]), 0).tolist()
    # A column that is an argument, too, wider there than here; every row; none.
    assert found(raised, where=(col("kept") == 1) & (col("x") > 5)).tolist() == np.where((kept == 1) & (x > 5), x + 3, 0).tolist()
    assert found(raised, x="kept", where="kept").tolist() == (4 * kept).tolist()
    assert found(raised, where=col("x") >= 0).tolist() == (x + 3).tolist()
    assert found(raised, where=col("x") > 15).tolist() == [0] * len(x)

    # Results of several names, negative ones, and a constant.
    @toroid.program
    def several(x: toroid.u4, where0: toroid.u2) -> Any:
        return {"below": -x, "same": where0, "known": x * 0 + 5}

    results = found(several, where="kept", where0="dept")
    assert {name: column.tolist() for name, column in results.items()} == {
        "below": (-x * kept).tolist(),
        "same": (dept * kept).tolist(),
        "known": (5 * kept).tolist(),
    }
    # The graph that is shown is the one that runs, and costs are its costs.
    assert "select" in raised.explain(table, where="kept", **loose).split("cost:")[0]
    assert raised.cost(table, where="kept", **loose).bootstraps > raised.cost(table, **loose).bootstraps


def test_a_sum_of_a_program_has_nothing_of_rows_that_are_left_out(client: toroid.Client, masked: Any) -> None:
    data, table = masked
    text = "input x: 0..15\n_0 = 2*x + 1\n_1 = sum(_0)\n_2 = sum(x)\noutput total = _1\noutput x = _2\noutput row = _0\n"
    program = toroid.GraphProgram(text, {"x": toroid.Range(0, 15)}, ["total", "x", "row"], "by hand")
    with pytest.raises(toroid.GraphError):
        # Sums and rows are results of two programs, with a mask or without.
        program.compile(table, where="kept")
    text = text.replace("output row = _0\n", "")
    program = toroid.GraphProgram(text, {"x": toroid.Range(0, 15)}, ["total", "x"], "by hand")
    found = client.decrypt(program.run(table, where="kept", log2_failure=-30), max_log2_failure=-15)
    x, kept = np.array(data["x"]), np.array(data["kept"])
    assert {name: column.tolist() for name, column in found.items()} == {"total": [int(((2 * x + 1) * kept).sum())], "x": [int((x * kept).sum())]}
    # Names of the text are not those of the graph that the mask goes into.
    text = "input x: 0..15\n_2 = 2*x + 1\ns = sum(_2)\noutput total = s\n"
    program = toroid.GraphProgram(text, {"x": toroid.Range(0, 15)}, ["total"], "by hand")
    found = client.decrypt(program.run(table, where="kept", log2_failure=-30), max_log2_failure=-15)
    assert {name: column.tolist() for name, column in found.items()} == {"total": [int(((2 * x + 1) * kept).sum())]}


def test_masks_that_are_none_are_refused(masked: Any) -> None:
    _, table = masked
    with pytest.raises(toroid.GraphError, match="the condition dept is 0..3, and a condition is 0 or 1"):
        raised.run(table, where="dept")
    with pytest.raises(toroid.MissingError, match="table t has no column other for where; it has x, by, kept, dept"):
        raised.run(table, where="other")
    for where in ([1, 0, 1, 1, 0], np.ones(5, dtype=bool), 1):
        with pytest.raises(TypeError, match="encrypt a mask as one more column of the table; one that the drive may see goes with Drive.run"):
            raised.run(table, where=where)
    with pytest.raises(TypeError, match="where looks at column kept: give the table that has it"):
        raised.compile(where="kept")
