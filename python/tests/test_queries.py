"""Questions to tables, against pandas and in clear, on encrypted rows."""

from __future__ import annotations

import itertools
import pickle
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
import toroid
from hypothesis import given, settings
from hypothesis import strategies as st
from toroid import col
from toroid._columns import Layout, StoredColumn
from toroid._expr import applied
from toroid._rounds import Stored, network

ROWS = 24


@toroid.table(out=toroid.u4)
def tax(salary: toroid.u8) -> int:
    return 0 if salary < 20 else min(15, (salary - 20) // 3)


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(20)
    return {"salary": rng.integers(0, 64, ROWS), "dept": rng.integers(0, 4, ROWS)}


@pytest.fixture(scope="module", params=["tiny-wopbs"])
def place(request: pytest.FixtureRequest, data: dict[str, Any]) -> Any:
    client = toroid.Client.generate(request.param)
    with toroid.open() as drive:
        drive.install(client.public_keys())
        yield client, drive.upload("staff", client.encrypt(data, {"salary": (0, 63), "dept": (0, 3)}))


def answer(place: Any, query: toroid.Query) -> dict[str, Any]:
    # Sets for tests are noisier than those that protect something.
    client, table = place
    assert table.rows == ROWS
    return client.decrypt(query.run(log2_failure=-30), max_log2_failure=-20)


def test_sums_and_counts_of_rows_that_meet_a_condition(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    query = table.where(col("salary") > 30).where(~(col("dept") == 2)).agg(n=toroid.count(), total=col("salary").sum())
    frame = pd.DataFrame(data)
    chosen = frame[(frame.salary > 30) & (frame.dept != 2)]
    expected = {"n": len(chosen), "total": int(chosen.salary.sum())}
    assert query.simulate(data) == expected
    assert answer(place, query) == expected


def test_columns_of_booleans_are_simulated(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    assert table.where(col("dept") == 1).agg(n=toroid.count()).simulate({"dept": np.array([True, False, True])}) == {"n": 2}


def test_groups(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    query = table.group_by("dept").agg(n=toroid.count(), mean=col("salary").mean(), tax=tax(col("salary")).sum())
    frame = pd.DataFrame(data).assign(tax=[tax(int(salary)) for salary in data["salary"]])
    groups = frame.groupby("dept")
    found = answer(place, query)
    assert found["dept"].tolist() == [0, 1, 2, 3]
    assert found["n"].tolist() == groups.size().tolist()
    assert found["mean"].tolist() == groups.salary.mean().tolist()
    assert found["tax"].tolist() == groups.tax.sum().tolist()
    simulated = query.simulate(data)
    assert all((simulated[name] == found[name]).all() for name in found)


def test_groups_without_rows_have_no_mean(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    query = table.where(col("dept") == 1).group_by("dept").agg(mean=col("salary").mean())
    mean = query.simulate(data)["mean"]
    assert np.isnan(mean[[0, 2, 3]]).all() and not np.isnan(mean[1])


def test_values_of_rows(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    found = answer(place, table.where(col("salary") >= 32).select("dept", tax=tax(col("salary"))))
    assert found["dept"].tolist() == data["dept"].tolist()
    assert found["tax"].tolist() == [tax(int(salary)) for salary in data["salary"]]
    assert found["where"].tolist() == (data["salary"] >= 32).tolist()


def test_histograms(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    edges = [0, 16, 32, 60]
    found = answer(place, table.histogram("salary", edges))
    # The last bin of numpy has its upper edge, too.
    expected, _ = np.histogram(data["salary"], [0, 16, 32, 59])
    assert data["salary"].max() >= 60
    assert found["low"].tolist() == edges[:-1]
    assert found["count"][:2].tolist() == expected[:2].tolist()
    assert found["count"][2] == np.count_nonzero((data["salary"] >= 32) & (data["salary"] < 60))


def test_all_rows_are_counted_without_a_program(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    found = table.agg(n=toroid.count(), total=col("salary").sum()).simulate(data)
    assert found == {"n": ROWS, "total": int(data["salary"].sum())}
    query = table.agg(n=toroid.count())
    with pytest.raises(ValueError, match="known without a program"):
        query.compile()
    assert query.simulate(data) == answer(place, query) == {"n": ROWS}
    zero = table.agg(nothing=(col("salary") * 0).sum())
    assert zero.simulate(data) == answer(place, zero) == {"nothing": 0}


def test_simulations_count_the_rows_of_the_data(place: Any) -> None:
    _, table = place
    assert table.agg(n=toroid.count(), mean=col("salary").mean()).simulate({"salary": [1, 3]}) == {"n": 2, "mean": 2.0}
    assert table.sort("salary").simulate({"salary": [3, 1, 2], "dept": [0, 1, 2]})["dept"].tolist() == [1, 2, 0]
    assert table.agg(most=col("salary").max(), n=toroid.count()).simulate({"salary": [3, 1, 2]}) == {"most": 3, "n": 3}
    with pytest.raises(ValueError, match="salary 2, dept 1"):
        table.agg(n=toroid.count()).simulate({"salary": [1, 3], "dept": [1]})


def test_conditions_are_zero_or_one(place: Any) -> None:
    _, table = place
    both = (col("salary") > 30) + (col("dept") == 1)
    for condition in (col("salary"), both, col("dept") & 3):
        with pytest.raises(toroid.GraphError, match="a condition is 0 or 1"):
            table.where(condition).agg(n=toroid.count()).compile()
        with pytest.raises(toroid.GraphError, match="a condition is 0 or 1"):
            table.where(col("salary") > 30).where(condition).group_by("dept").agg(n=toroid.count()).compile()
    for wrong in (True, "salary > 30", col("salary").sum()):
        with pytest.raises(TypeError, match="a condition compares columns"):
            table.where(wrong)


def test_expressions_take_the_operations_of_programs(place: Any, data: dict[str, Any]) -> None:
    _, table = place

    @toroid.program
    def weighted(x: toroid.u8, y: toroid.u8) -> Any:
        return 2 * x + y

    salary, dept = data["salary"], data["dept"]
    query = table.select(
        low=toroid.minimum(col("salary"), 20, col("dept") * 16),
        high=toroid.maximum(col("salary"), col("dept") * 16),
        chosen=toroid.select(col("dept") == 2, col("salary"), -1),
        wrapped=toroid.wrap(col("salary") * 8, toroid.u8),
        weighted=toroid.dot([col("salary"), col("dept")], [3, -5]),
        named=weighted(col("salary"), y=col("dept")),
        power=col("dept") ** 2,
        masked=6 & col("salary"),
        inverted=~col("salary"),
        squared=col("dept").table(lambda number: number * number),
        among=col("salary").isin(range(0, 64, 3)),
    )
    found = query.simulate(data)
    expected = {
        "low": np.minimum(np.minimum(salary, 20), dept * 16),
        "high": np.maximum(salary, dept * 16),
        "chosen": np.where(dept == 2, salary, -1),
        "wrapped": salary * 8 % 256,
        "weighted": 3 * salary - 5 * dept,
        "named": 2 * salary + dept,
        "power": dept**2,
        "masked": 6 & salary,
        "inverted": ~salary,
        "squared": dept**2,
        "among": (salary % 3 == 0).astype(int),
    }
    assert {name: numbers.tolist() for name, numbers in found.items()} == {name: numbers.tolist() for name, numbers in expected.items()}


def test_least_and_greatest_values(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    pay = col("salary")
    query = table.where(pay > 20).agg(least=pay.min(), most=pay.max(), n=toroid.count(), low=(3 - pay).min())
    chosen = data["salary"][data["salary"] > 20]
    expected = {"least": chosen.min(), "most": chosen.max(), "n": len(chosen), "low": 3 - chosen.max()}
    assert query.simulate(data) == expected
    assert answer(place, query) == expected
    # Without a condition the columns go into the comparisons as they are: n - 1 of them.
    whole = table.agg(least=pay.min())
    assert answer(place, whole) == whole.simulate(data) == {"least": data["salary"].min()}
    assert whole.cost().comparisons == ROWS - 1
    # The lesser one, and a bootstrap of it, so that the noise of rounds does not add up.
    assert whole.cost().bootstraps == 2 * (ROWS - 1)
    assert whole.cost().rounds == 5
    # Nothing is left on the drive.
    assert all(name.startswith("staff/") for name in table.drive.columns())


def test_least_values_of_groups_and_of_no_rows(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    query = table.where(col("dept") != 3).group_by("dept").agg(least=col("salary").min(), n=toroid.count())
    frame = pd.DataFrame(data)
    expected = [int(frame[frame.dept == dept].salary.min()) for dept in range(3)]
    found = answer(place, query)
    assert found["least"].tolist() == [*expected, None]
    assert found["n"][3] == 0
    assert query.simulate(data)["least"].tolist() == found["least"].tolist()
    nothing = table.where(col("salary") > 63).agg(least=col("salary").min(), most=col("salary").max())
    assert nothing.simulate(data) == {"least": None, "most": None}


DEPTS = {"dept": [2, 0, 3], "budget": [40, 7, 15], "is_abroad": [False, True, True]}


def frames() -> list[Any]:
    return [DEPTS, pd.DataFrame(DEPTS), polars.DataFrame(DEPTS), pyarrow.table(DEPTS)]


def test_rows_are_joined_with_a_table_in_clear(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    merged = pd.DataFrame(data).merge(pd.DataFrame(DEPTS), on="dept")
    query = table.join(frames()[3], "dept").where(col("salary") > 20).group_by("is_abroad").agg(n=toroid.count(), most=col("budget").max())
    groups = merged[merged.salary > 20].groupby("is_abroad")
    found = answer(place, query)
    assert found["is_abroad"].tolist() == [0, 1]
    assert found["n"].tolist() == groups.size().tolist()
    assert found["most"].tolist() == groups.budget.max().tolist()
    for other in frames():
        total = table.join(other, "dept").agg(total=(col("budget") + col("salary")).sum())
        assert total.simulate(data) == {"total": int((merged.budget + merged.salary).sum())}


def test_rows_without_a_partner_get_a_number(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    query = table.join(DEPTS, "dept", how="left", fill=-1)
    merged = pd.DataFrame(data).merge(pd.DataFrame(DEPTS), on="dept", how="left")
    budgets = merged.budget.fillna(-1).astype(int)
    found = answer(place, query.select("salary", "budget"))
    assert found["budget"].tolist() == budgets.tolist()
    # What was joined is a column as every other: it can be sorted by, looked up again, and goes along.
    ranking = query.sort("budget").simulate(data)
    assert ranking["budget"].tolist() == sorted(budgets.tolist())
    regions = {"budget": [7, 15, 40], "region": [0, 1, 2]}
    again = query.where(col("budget") >= 0).join(regions, "budget", how="left", fill=9).select("region").simulate(data)
    assert again["region"].tolist() == [{7: 0, 15: 1, 40: 2}.get(budget, 9) for budget in budgets]
    inner = table.join(DEPTS, "dept").top_k(30, "budget").simulate(data)
    assert inner["budget"].tolist() == sorted(budgets[budgets >= 0].tolist(), reverse=True)


def test_wrong_joins_are_refused(place: Any) -> None:
    _, table = place
    with pytest.raises(ValueError, match="key 1 stands in rows 0 and 2"):
        table.join({"dept": [1, 2, 1], "x": [0, 0, 0]}, "dept")
    with pytest.raises(ValueError, match="column x of the table to join has 1 rows"):
        table.join({"dept": [1, 2], "x": [0]}, "dept")
    with pytest.raises(ValueError, match="a column salary already"):
        table.join({"dept": [1], "salary": [0]}, "dept")
    with pytest.raises(ValueError, match="'inner' or 'left'"):
        table.join(DEPTS, "dept", how="outer")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="with the column team"):
        table.join(DEPTS, "team")
    with pytest.raises(TypeError, match="integers or booleans"):
        table.join({"dept": [1], "x": [0.5]}, "dept")
    line = sys._getframe().f_lineno + 1
    outside = table.join({"dept": [0, 4], "x": [0, 1]}, "dept")
    with pytest.raises(toroid.GraphError, match=r"key 4 of the table to join is outside 0\.\.3") as error:
        outside.agg(n=toroid.count()).cost()
    assert error.value.line == f"{__file__}:{line}"
    wide = plain_table({"x": (0, 2**20)}, 9).join({"x": [1], "y": [2]}, "x").agg(y=col("y").sum())
    with pytest.raises(toroid.GraphError, match="at most 65536 entries"):
        wide.cost()


def rows_of(columns: Mapping[str, Any]) -> list[tuple[int, ...]]:
    return sorted(zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True))


def test_sorted_rows(place: Any, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _, table = place
    # Several commands for each round.
    monkeypatch.setattr("toroid._rounds.BLOCK_ROWS", 5)
    query = table.sort("salary")
    found = answer(place, query)
    assert found["salary"].tolist() == sorted(data["salary"].tolist())
    assert rows_of(found) == rows_of(data)
    simulated = query.simulate(data)
    assert all((simulated[name] == found[name]).all() for name in found)
    assert len(network(ROWS, ROWS)[0]) == query.cost().rounds == 15
    assert all(name.startswith("staff/") for name in table.drive.columns())


def test_rows_of_the_greatest_keys_that_meet_a_condition(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    query = table.where(col("dept") != 2).select("salary", tax=tax(col("salary")), dept=col("dept") - 3).top_k(3, col("salary") - 20)
    found = answer(place, query)
    chosen = data["salary"][data["dept"] != 2]
    assert found["salary"].tolist() == sorted(chosen.tolist(), reverse=True)[:3]
    assert found["tax"].tolist() == [tax(int(salary)) for salary in found["salary"]]
    assert set(rows_of({"salary": found["salary"], "dept": found["dept"] + 3})) <= set(rows_of(data))
    assert query.cost().comparisons < table.sort("salary").cost().comparisons
    # Fewer rows meet a condition than are asked for.
    few = table.where(col("salary") == data["salary"][0]).top_k(20, "dept", descending=False)
    depts = sorted(data["dept"][data["salary"] == data["salary"][0]].tolist())
    assert few.simulate(data)["dept"].tolist() == depts


@pytest.mark.parametrize("params", ["tiny", "tiny-wopbs"])
def test_numbers_of_every_width_go_along_with_a_key(params: str) -> None:
    client = toroid.Client.generate(params)
    columns = {"key": np.array([1, 0])} | {f"w{bits}": np.array([2**bits - 1, 2 ** (bits - 1)]) for bits in range(1, 11)}
    types = {"key": (0, 1)} | {f"w{bits}": (0, 2**bits - 1) for bits in range(1, 11)}
    with toroid.open() as drive:
        drive.install(client.public_keys())
        table = drive.upload("widths", client.encrypt(columns, types))
        for name in [name for name in columns if name != "key"]:
            found = client.decrypt(table.select("key", name).sort("key").run(log2_failure=-20))
            assert found[name].tolist() == columns[name][::-1].tolist(), name


def test_networks_sort() -> None:
    # A network that sorts all rows of zeros and ones sorts all rows.
    for rows in range(1, 10):
        for first in range(1, rows + 1):
            rounds, order = network(rows, first)
            assert all(len({row for pair in pairs for row in pair}) == 2 * len(pairs) for pairs in rounds)
            for numbers in itertools.product((0, 1), repeat=rows):
                places = list(numbers)
                for low, high in itertools.chain.from_iterable(rounds):
                    places[low], places[high] = sorted((places[low], places[high]))
                assert [places[row] for row in order] == sorted(numbers)[:first]
    assert sum(map(len, network(1000, 1)[0])) == 999
    assert sum(map(len, network(1000, 8)[0])) < sum(map(len, network(1000, 100)[0])) < sum(map(len, network(1000, 1000)[0]))


def plain_table(columns: Mapping[str, tuple[int, int]], rows: int, params: str = "tiny-wopbs", bits: int = 9) -> toroid.Table:
    """A table of which nothing but the layouts is known."""
    layouts = {name: Layout.of(low, high, bits, bits // 2) for name, (low, high) in columns.items()}
    stored = {name: StoredColumn(layout, (name,) * len(layout.digits), rows, params) for name, layout in layouts.items()}
    return toroid.Table(None, "plain", stored)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.data())
def test_comparisons_in_clear_are_those_of_pandas(drawn: st.DataObject) -> None:
    ends = {name: sorted(drawn.draw(st.tuples(*[st.integers(-300, 300)] * 2), label=name)) for name in ("a", "b")}
    count = drawn.draw(st.integers(1, 12))
    numbers = {name: drawn.draw(st.lists(st.integers(*interval), min_size=count, max_size=count)) for name, interval in ends.items()}
    table, frame = plain_table(ends, count), pd.DataFrame(numbers)
    bound, descending = drawn.draw(st.integers(-300, 300)), drawn.draw(st.booleans())
    taken = drawn.draw(st.integers(1, 13))
    chosen = frame[frame.a + frame.b >= bound]
    question = table.where(col("a") + col("b") >= bound)
    extremes = question.agg(least=col("a").min(), most=(col("a") - col("b")).max()).simulate(numbers)
    difference = chosen.a - chosen.b
    assert extremes == {"least": None, "most": None} if chosen.empty else {"least": chosen.a.min(), "most": difference.max()}
    assert table.agg(most=col("b").max()).simulate(numbers) == {"most": frame.b.max()}
    found = question.top_k(taken, "a", descending=descending).simulate(numbers)
    assert found["a"].tolist() == chosen.a.sort_values(ascending=not descending).tolist()[:taken]
    assert set(rows_of(found)) <= set(rows_of(numbers))
    key = col("b") - col("a")
    found = table.sort(key, descending=descending).simulate(numbers)
    assert rows_of(found) == rows_of(numbers)
    keys = (found["b"] - found["a"]).tolist()
    assert keys == sorted(keys, reverse=descending)


@pytest.mark.parametrize("name", ["long", "one"])
def test_numbers_of_several_digits_are_compared(name: str) -> None:
    low, high = {"long": (-(2**26), 2**26), "one": (-5, -5)}[name]
    rng = np.random.default_rng(12)
    data = {"x": rng.integers(low, high + 1, 5), "y": rng.integers(0, 2**20, 5)}
    client = toroid.Client.generate("tiny-wopbs")
    with toroid.open() as drive:
        drive.install(client.public_keys())
        table = drive.upload("numbers", client.encrypt(data, {"x": (low, high), "y": (0, 2**20)}))
        query = table.top_k(3, "x")
        found = client.decrypt(query.run(log2_failure=-30), max_log2_failure=-20)
        assert found["x"].tolist() == sorted(data["x"].tolist(), reverse=True)[:3]
        assert set(rows_of(found)) <= set(rows_of(data))


def test_pairs_that_do_not_fit_the_memory_of_the_drive_go_in_parts(place: Any, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _, table = place
    asked: list[int] = []
    compute = Stored._compute

    def little(machine: Stored, step: tuple[int, int], inputs: Any, rows: int) -> Any:
        asked.append(rows)
        if rows > 4:
            raise toroid.FullError("no room")
        return compute(machine, step, inputs, rows)

    monkeypatch.setattr(Stored, "_compute", little)
    assert answer(place, table.agg(most=col("salary").max())) == {"most": data["salary"].max()}
    assert max(asked) > 4


def test_a_sort_that_was_interrupted_goes_on(place: Any, data: dict[str, Any]) -> None:
    client, table = place
    query = table.select("salary").sort("salary")

    def interrupt(_stage: str, done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        query.run(log2_failure=-30, progress=interrupt)
    kept = [name for name in table.drive.columns() if not name.startswith("staff/")]
    assert kept
    steps: list[int] = []
    encrypted = query.run(log2_failure=-30, progress=lambda _stage, done, _total: steps.append(done))
    assert client.decrypt(encrypted, max_log2_failure=-20)["salary"].tolist() == sorted(data["salary"].tolist())
    assert steps[-1] == query.cost().comparisons
    assert all(name.startswith("staff/") for name in table.drive.columns())


def test_what_abandoned_questions_left_is_cleaned_but_not_what_runs(place: Any) -> None:
    client, table = place
    drive = table.drive
    given_up, running = table.select("salary").sort("salary"), table.select("dept").sort("dept")
    before = set(drive.columns())

    def interrupt(_stage: str, done: int, total: int) -> None:
        if done > total // 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        given_up.run(log2_failure=-30, progress=interrupt)
    left = set(drive.columns()) - before
    assert left
    # A result of a program that was interrupted.
    with pytest.raises(KeyboardInterrupt):
        table.agg(total=col("salary").sum()).run(log2_failure=-30, progress=lambda *_: interrupt("", 1, 1))
    left = set(drive.columns()) - before
    deleted: list[str] = []
    encrypted = running.run(log2_failure=-30, progress=lambda *_: deleted.extend(drive.clean()))
    assert sorted(deleted) == sorted(left)
    found = client.decrypt(encrypted, max_log2_failure=-20)["dept"].tolist()
    assert found == sorted(found)
    assert set(drive.columns()) == before
    assert drive.clean() == []


def test_expressions_may_be_nested_deeper_than_calls(place: Any) -> None:
    _, table = place
    deep = sys.getrecursionlimit() + 100
    condition, total, negated = col("dept") == 0, col("salary"), col("dept") == 0
    for number in range(deep):
        condition = condition | (col("dept") == number % 3)
        total = total + 1
    for _ in range(100):
        negated = ~negated
    query = table.where(condition & negated).select(total=total)
    found = query.simulate({"dept": [0, 3], "salary": [5, 6]})
    assert found["total"].tolist() == [5 + deep, 6 + deep]
    assert found["where"].tolist() == [True, False]
    # An expression that is used twice is computed once; otherwise these would be 2^30 sums.
    for _ in range(30):
        total = total + total - total
    assert table.select(total=total).simulate({"salary": [7]})["total"].tolist() == [7 + deep]
    assert len(total.name) < 5000 and total.name.endswith("…")


def test_questions_that_end_take_no_more_parts(place: Any) -> None:
    _, table = place
    with pytest.raises(ValueError, match="last part of a question"):
        table.sort("salary").where(col("dept") == 1)
    with pytest.raises(ValueError, match="last part of a question"):
        table.histogram("salary", [0, 5]).group_by("dept")
    with pytest.raises(ValueError, match="sort the answer once it is decrypted"):
        table.group_by("dept").agg(n=toroid.count()).sort("n")
    with pytest.raises(ValueError, match="at least one"):
        table.top_k(0, "salary")
    long = plain_table({"x": (0, 2**40)}, 9)
    with pytest.raises(toroid.GraphError, match="11 digits") as error:
        long.sort("x").cost()
    assert error.value.line == f"{__file__}:{sys._getframe().f_lineno - 1}"


def test_conditions_that_hold_for_all_rows_or_none_and_keys_of_one_value() -> None:
    data = {"x": np.array([3, 1, 2]), "y": np.array([400, 7, 300])}
    client = toroid.Client.generate("tiny-wopbs")
    with toroid.open() as drive:
        drive.install(client.public_keys())
        table = drive.upload("numbers", client.encrypt(data, {"x": (0, 63), "y": (0, 511)}))
        nothing, everything = table.where(col("x") > 63), table.where(col("x") - col("x") == 0)
        questions: list[tuple[toroid.Query, dict[str, Any]]] = [
            (nothing.agg(least=col("y").min(), most=col("x").max()), {"least": None, "most": None}),
            (nothing.top_k(2, "y"), {"x": [], "y": []}),
            (everything.agg(least=col("x").min(), most=col("y").max()), {"least": 1, "most": 400}),
            (everything.top_k(2, "y"), {"x": [3, 2], "y": [400, 300]}),
            (table.agg(most=(col("x") & 64).max(), least=(col("x") * 0 - 9).min()), {"most": 0, "least": -9}),
            (table.select(z=col("x") * 0 + 7).sort(col("y") * 0), {"z": [7, 7, 7]}),
        ]
        for query, expected in questions:
            encrypted = pickle.loads(pickle.dumps(query.run(log2_failure=-30)))
            found = client.decrypt(encrypted, max_log2_failure=-20)
            for each in (found, query.simulate(data)):
                assert {name: np.asarray(each[name]).tolist() for name in each} == expected, query


@pytest.mark.parametrize("params", ["message8", "message16"])
def test_whole_messages_are_compared(params: str) -> None:
    bits = 8 if params == "message8" else 16
    for low, high in ((0, 2**bits - 1), (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), (0, 2 ** (bits - 1))):
        table = plain_table({"x": (low, high), "y": (0, 3)}, 50, params, bits)
        for question in (table, table.where(col("y") > 1)):
            for query in (question.agg(most=col("x").max(), least=col("x").min()), question.top_k(1, "x")):
                assert query.cost().log2_failure < -100


def test_many_rounds_keep_the_noise_of_one() -> None:
    for params, bits in (("message8", 8), ("message14", 14), ("message16", 16)):
        for most in (63, 255, 2**12 - 1, 2**16 - 1):
            cost = plain_table({"x": (0, most)}, 1000, params, bits).sort("x").cost()
            assert cost.rounds == 55
            assert cost.log2_failure < -110


def test_numbers_to_simulate_with_are_of_the_type_of_their_column(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    for question in (table.sort("salary"), table.agg(most=col("salary").max()), table.agg(total=col("salary").sum()), table.select("salary", "dept")):
        for number in (64, -1):
            with pytest.raises(toroid.GraphError, match=rf"salary: the number in row 1 is {number}, outside 0\.\.63"):
                question.simulate({"salary": [3, number], "dept": [0, 0]})
        with pytest.raises(TypeError, match="salary: the number in row 0 is 1.5; expected an integer"):
            question.simulate({"salary": [1.5, 0.5], "dept": [0, 0]})
        with pytest.raises(toroid.MissingError, match="column salary, and there are no numbers"):
            question.simulate({"dept": data["dept"]})


def test_no_rows_are_simulated(place: Any) -> None:
    _, table = place
    nothing: dict[str, list[int]] = {"salary": [], "dept": []}
    extremes = {"least": col("salary").min(), "most": (col("salary") * 0).max(), "n": toroid.count()}
    for question in (table, table.where(col("dept") == 1)):
        assert question.agg(**extremes).simulate(nothing) == {"least": None, "most": None, "n": 0}
        assert question.group_by("dept").agg(**extremes).simulate(nothing)["most"].tolist() == [None] * 4
        for query in (question.sort("salary"), question.top_k(3, col("salary") + 1), question.sort(col("salary") * 0)):
            assert {name: column.tolist() for name, column in query.simulate(nothing).items()} == {"salary": [], "dept": []}


def test_questions_with_nothing_to_compare_cost_nothing(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    single = plain_table({"x": (0, 15)}, 1).agg(least=col("x").min())
    for query, value in ((single, None), (table.agg(least=(col("salary") * 0).min()), 0)):
        cost = query.cost()
        assert (cost.params, cost.comparisons, cost.bootstraps, cost.seconds, cost.key_bytes) == ("tiny-wopbs", 0, 0, 0, 0)
        assert cost.log2_failure == -np.inf
        assert query.compile().params == "tiny-wopbs"
        assert query.explain().strip() == f"cost: {cost}"
        if value is not None:
            assert query.simulate(data) == answer(place, query) == {"least": value}


def test_columns_may_have_any_name() -> None:
    table = plain_table({"the key": (-8, 7), "a": (0, 15)}, 2)
    found = table.sort("a").simulate({"the key": [-3, 1], "a": [2, 1]})
    assert {name: column.tolist() for name, column in found.items()} == {"the key": [1, -3], "a": [1, 2]}


def test_wrong_arguments_of_questions_are_refused(place: Any) -> None:
    _, table = place
    for count in (2.5, "salary", None):
        with pytest.raises(TypeError, match="no number of rows"):
            table.top_k(count, "salary")
    keys: list[Any] = [None, ["salary", "dept"], col("salary").sum()]
    for key in keys:
        for ask in (table.sort, table.group_by, lambda by: table.top_k(1, by)):
            with pytest.raises(TypeError, match="is a column or an expression, not"):
                ask(key)
    with pytest.raises(TypeError, match="isin takes several numbers"):
        col("salary").isin(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fill is 1.5; expected an integer"):
        table.join(DEPTS, "dept", how="left", fill=1.5)
    with pytest.raises(ValueError, match="how='inner' does not count"):
        table.join(DEPTS, "dept", fill=0)


def test_rounds_count_each_failure_once(place: Any, data: dict[str, Any]) -> None:
    client, table = place
    query = table.select("dept").sort("salary")
    found = query.run(log2_failure=-30)
    cost = query.cost(log2_failure=-30)
    assert abs(found.log2_failure - cost.log2_failure) < 0.5
    with pytest.raises(toroid.NoiseError, match="some comparison is wrong with a probability"):
        client.decrypt(found, max_log2_failure=found.log2_failure - 1)
    assert sorted(client.decrypt(found, max_log2_failure=-20)["dept"].tolist()) == sorted(data["dept"].tolist())


def test_wrong_questions_are_refused(place: Any) -> None:
    _, table = place
    with pytest.raises(toroid.MissingError, match="no column wage; it has salary, dept"):
        table.agg(total=col("wage").sum()).run()
    with pytest.raises(TypeError, match="is no sum, count, mean, min or max"):
        table.agg(total=col("salary"))
    with pytest.raises(TypeError, match="write & for `and`"):
        bool(col("salary") > 3 and col("dept") > 1)
    with pytest.raises(ValueError, match="asks for nothing"):
        table.where(col("salary") > 3).run()
    with pytest.raises(ValueError, match="edges"):
        table.histogram("salary", [3, 3])
    with pytest.raises(toroid.GraphError, match="at most 256 values"):
        table.group_by(col("salary") * 5).agg(n=toroid.count()).run()
    with pytest.raises(toroid.GraphError, match="use //"):
        table.select(half=col("salary") / 2).run()
    with pytest.raises(ValueError, match="use agg"):
        table.group_by("dept").select("salary")


def test_no_part_of_a_question_is_lost(place: Any) -> None:
    _, table = place
    wrong = [
        lambda: table.histogram("salary", [0, 32, 64]).where(col("dept") == 1),
        lambda: table.group_by("dept").histogram("salary", [0, 32, 64]),
        lambda: table.group_by("dept").group_by("salary"),
        lambda: table.agg(n=toroid.count()).select("dept"),
        lambda: table.select("dept").agg(n=toroid.count()),
        lambda: table.select("salary", salary=col("dept")),
        lambda: table.select("salary", "salary"),
        lambda: table.group_by("dept").agg(dept=toroid.count()).compile(),
        lambda: table.where(col("dept") == 1).select(where=col("salary")).compile(),
        lambda: table.select(one=toroid.minimum(1, 2)).compile(),
    ]
    for question in wrong:
        with pytest.raises(ValueError):
            question()
    for question in (lambda: table.group_by(["dept"]), lambda: table.histogram("salary", 5), lambda: table.select(n=toroid.count())):
        with pytest.raises(TypeError):
            question()


def test_errors_name_the_line_of_the_expression(place: Any) -> None:
    _, table = place
    here = sys._getframe().f_lineno
    half = col("salary") / 2
    wide = (col("salary") + 1) * 5
    wage = col("wage")
    with pytest.raises(toroid.GraphError) as fraction:
        table.select(half=half + 1).run()
    assert fraction.value.line == f"{__file__}:{here + 1}"
    with pytest.raises(toroid.GraphError) as key:
        table.group_by(wide).agg(n=toroid.count()).run()
    assert key.value.line == f"{__file__}:{here + 2}"
    with pytest.raises(toroid.MissingError, match=f"{here + 3}: table staff has no column wage"):
        table.where(wage > 3).agg(n=toroid.count()).run()
    # What the compiler refuses names it, too.
    with pytest.raises(toroid.GraphError) as bound:
        table.agg(total=(col("salary") << 99).sum()).compile()
    assert bound.value.line == f"{__file__}:{sys._getframe().f_lineno - 1}"


def test_errors_within_programs_name_the_line_of_the_program(place: Any) -> None:
    _, table = place

    @toroid.program
    def raised(x: toroid.u8) -> Any:
        return x + 1

    line = sys._getframe().f_lineno + 2
    def halved(x: Any) -> Any:
        return x / 2

    with pytest.raises(toroid.GraphError) as error:
        table.select(x=applied(halved, "halved", (raised(col("salary")),))).run()
    assert error.value.line == f"{__file__}:{line}"


def test_questions_may_look_at_many_columns() -> None:
    client = toroid.Client.generate("tiny-wopbs")
    names = [f"x{number}" for number in range(40)]
    data = {name: np.array([number % 4, (number + 1) % 4]) for number, name in enumerate(names)}
    with toroid.open() as drive:
        drive.install(client.public_keys())
        table = drive.upload("wide", client.encrypt(data, {name: (0, 3) for name in names}))
        total = sum((col(name) for name in names[1:]), col(names[0]))
        found = client.decrypt(table.select(total=total).run(log2_failure=-30), max_log2_failure=-20)
    assert found["total"].tolist() == [60, 60]


def test_a_histogram_is_of_a_column_and_of_integers(place: Any) -> None:
    staff = place[1]
    with pytest.raises(TypeError, match="of a column or an expression, not int"):
        staff.histogram(5, [0, 1])
    for edges in ([0, 2.5], ["a", "b"], 3):
        with pytest.raises(TypeError, match="list of integers"):
            staff.histogram("salary", edges)


def test_answers_have_the_type_of_what_they_may_be(place: Any) -> None:
    client, staff = place
    column = client.encrypt({"x": [1, 2]}, {"x": "u64"})["x"]
    layouts = {"x": column.layout, "key": client.encrypt([0, 1], "u1").layout}
    table = toroid.Table(staff.drive, "t", {name: StoredColumn(layout, (name,), 2, client.params) for name, layout in layouts.items()})
    for numbers in ([1, 2], [1, 2**64 - 1]):
        data = {"x": numbers, "key": [0, 1]}
        selected = table.select("x", half=col("x") >> 1, wide=col("x") // 3).simulate(data)
        assert selected["x"].dtype == np.uint64 and selected["half"].dtype == np.int64 and selected["x"].tolist() == numbers
        found = table.group_by("key").agg(n=toroid.count(), s=col("x").sum(), mean=col("x").mean()).simulate(data)
        assert [found[name].dtype for name in ("n", "s", "mean")] == [np.int64, object, np.float64]
        assert found["s"].tolist() == numbers


def test_numbers_beyond_those_of_int64_are_compared() -> None:
    client, middle = toroid.Client.generate("tiny-wopbs"), 2**63
    near = {"x": [middle + 5, middle - 3, middle, middle + 7], "key": [3, 1, 2, 0]}
    wide = {"u": [2**64 - 1, 0, middle, 7], "i": [-1, -middle, middle - 1, 5], "key": [1, 2, 3, 0]}
    with toroid.open() as drive:
        drive.install(client.public_keys())
        few = drive.upload("near", client.encrypt(near, {"x": (middle - 8, middle + 7), "key": (0, 3)}))
        all_of_64 = drive.upload("wide", client.encrypt(wide, {"u": "u64", "i": "i64", "key": (0, 3)}))
        ordered = sorted(near["x"])
        questions: list[tuple[toroid.Query, Mapping[str, Any], Mapping[str, Any]]] = [
            (few.agg(least=col("x").min(), most=col("x").max()), near, {"least": ordered[0], "most": ordered[-1]}),
            (few.sort("x"), near, {"x": ordered, "key": [1, 2, 3, 0]}),
            (few.top_k(2, "x"), near, {"x": ordered[:1:-1], "key": [0, 3]}),
            (few.where(col("x") > middle).sort("x", descending=True), near, {"x": ordered[:1:-1], "key": [0, 3]}),
            (few.where(col("key") < 3).group_by("key").agg(least=col("x").min()), near, {"key": [0, 1, 2, 3], "least": [ordered[-1], *ordered[:2], None]}),
            (all_of_64.select("u", "i").top_k(1, "key"), wide, {"u": [middle], "i": [middle - 1]}),
            (all_of_64.select(most=toroid.maximum(col("u"), col("i"))), wide, {"most": [2**64 - 1, 0, middle, 7]}),
        ]
        for query, data, expected in questions:
            found = client.decrypt(query.run(log2_failure=-20), max_log2_failure=-10)
            for each in (found, query.simulate(data)):
                assert {name: column.tolist() if isinstance(column, np.ndarray) else column for name, column in each.items()} == expected
                dtypes = {name: column.dtype for name, column in each.items() if isinstance(column, np.ndarray)}
                assert all(dtypes[name] == np.uint64 for name in {"x", "u", "most"} & set(dtypes))
                assert all(dtypes[name] == np.int64 for name in {"i", "key"} & set(dtypes))


def test_groups_and_bins_on_both_sides_of_the_end_of_int64_are_exact() -> None:
    middle = 2**63
    table = plain_table({"x": (middle - 2, middle + 1)}, 3)
    data = {"x": [middle + 1, middle - 2, middle + 1]}
    groups = list(range(middle - 2, middle + 2))
    for results in ({"n": toroid.count()}, {"n": toroid.count(), "most": col("x").max()}):
        found = table.group_by("x").agg(**results).simulate(data)
        assert found["x"].dtype == np.uint64 and found["x"].tolist() == groups
        assert found["n"].tolist() == [1, 0, 0, 2]
    bins = table.histogram("x", [middle - 2, middle, middle + 2]).simulate(data)
    assert {name: column.tolist() for name, column in bins.items()} == {"low": groups[::2], "high": [middle, middle + 2], "count": [1, 2]}


def test_what_has_no_type_of_64_bits_is_refused_and_exact_in_sums() -> None:
    table = plain_table({"u": (0, 2**64 - 1), "i": (-(2**63), 2**63 - 1)}, 2)
    data = {"u": [2**64 - 1, 5], "i": [-(2**63), 2**63 - 1]}
    difference = col("u") - col("i")
    for query in (table.select(d=difference), table.select(d=toroid.minimum(col("u"), col("i")) - 1)):
        with pytest.raises(toroid.GraphError, match="needs more than 64 bits"):
            query.compile()
    for query in (table.sort("u"), table.top_k(1, "i"), table.agg(most=difference.max()), table.agg(least=col("u").min())):
        with pytest.raises(toroid.GraphError, match=r"the values to compare have 1\d digits"):
            query.compile()
    assert table.agg(s=col("u").sum()).simulate(data) == {"s": 2**64 + 4}


def test_numbers_far_from_zero_are_compared_by_what_they_have_above_the_least() -> None:
    seconds = plain_table({"at": (1_700_000_000, 1_700_000_063), "id": (0, 15)}, 50)
    narrow = plain_table({"at": (0, 63), "id": (0, 15)}, 50)
    for far, near in ((seconds.sort("at"), narrow.sort("at")), (seconds.sort("id"), narrow.sort("id"))):
        assert far.cost().comparisons == near.cost().comparisons
        assert far.cost().bootstraps < near.cost().bootstraps + 50 * 40


def test_data_to_simulate_with_are_columns(place: Any, data: dict[str, Any]) -> None:
    _, table = place
    query = table.agg(total=col("salary").sum())
    expected = {"total": int(data["salary"].sum())}
    for frame in (pd.DataFrame(data), polars.DataFrame(data), pyarrow.table(data), pd.DataFrame(data).astype("Int64")):
        assert query.simulate(frame) == expected
    for wrong, message in ((5, "a dict of columns"), ({"salary": 5}, "salary: expected a list"), ({"salary": np.zeros((2, 2), int)}, "one dimension")):
        with pytest.raises(TypeError, match=message):
            query.simulate(wrong)


def test_what_names_no_column_is_refused(place: Any) -> None:
    _, table = place
    for name in (5, None, b"salary"):
        with pytest.raises(TypeError, match="a column's name is text"):
            col(name)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"pay is text: write toroid.col\('salary'\)"):
        table.select(pay="salary")
    for number in (1.5, None):
        with pytest.raises(TypeError, match="pay is .*; expected an integer"):
            table.select("salary", pay=number)
    for numbers in ([1.5], "ab", [float("nan")]):
        with pytest.raises(TypeError, match="a number of isin is"):
            col("salary").isin(numbers)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="of a function, a list or a dictionary, not of int"):
        table.select(a=col("salary").table(5)).compile()  # type: ignore[arg-type]


def test_questions_to_rows_of_an_encrypted_mask(client: toroid.Client, keys: Any) -> None:
    frame = pd.DataFrame({"pay": [5, 63, 7, 30, 8, 41], "dept": [0, 1, 1, 0, 1, 1], "kept": [1, 0, 1, 1, 0, 1]})
    there = frame[frame.kept == 1]

    def both(query: toroid.Query, where: Any = "kept") -> Any:
        found = client.decrypt(query.run(where=where, log2_failure=-30), max_log2_failure=-15)
        simulated = query.simulate(frame, where=where)
        assert {name: np.asarray(column).tolist() for name, column in found.items()} == {
            name: np.asarray(column).tolist() for name, column in simulated.items()
        }
        return simulated

    with toroid.open() as drive:
        drive.install(keys)
        table = drive.upload("staff", client.encrypt(frame, {"pay": (0, 63), "dept": (0, 1), "kept": (0, 1)}))
        sums = table.agg(n=toroid.count(), total=col("pay").sum(), mean=col("pay").mean(), most=col("pay").max())
        assert both(sums) == {"n": 4, "total": int(there.pay.sum()), "mean": there.pay.mean(), "most": 41}
        groups = both(table.where(col("pay") > 6).group_by("dept").agg(n=toroid.count()))
        assert groups["n"].tolist() == there[there.pay > 6].groupby("dept").size().tolist()
        assert both(table.histogram("pay", [0, 10, 64]))["count"].tolist() == [2, 2]
        assert both(table.select("pay").sort("pay"))["pay"].tolist() == sorted(there.pay)
        # Rows have their places, with 0 for what is left out.
        assert both(table.select("pay", five=5 + 0 * col("dept")))["pay"].tolist() == (frame.pay * frame.kept).tolist()
        selected = both(table.where(col("pay") < 40).select("pay"), col("kept") == 1)
        assert selected["pay"].tolist() == (frame.pay * frame.kept).tolist()
        assert selected["where"].tolist() == ((frame.pay < 40) & (frame.kept == 1)).tolist()
        # A condition of a joined column is a mask, too.
        floors = table.join({"dept": [0, 1], "floor": [0, 1]}, "dept")
        assert both(floors.agg(n=toroid.count()), "floor") == {"n": 4}
        assert "select" in sums.explain(-30, where="kept") and sums.cost(-30, where="kept").bootstraps > 0
        for query in (sums, table.select("pay")):
            with pytest.raises(toroid.GraphError, match="the condition pay is 0..63"):
                query.run(where="pay")
            with pytest.raises(toroid.MissingError, match="no column other"):
                query.run(where="other")
            with pytest.raises(TypeError, match="encrypt a mask as one more column"):
                query.run(where=frame.kept)  # type: ignore[arg-type]
