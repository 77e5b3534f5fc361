"""Questions to tables, against pandas and in clear, on encrypted rows."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toroid
from toroid import col
from toroid._expr import applied

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


def test_wrong_questions_are_refused(place: Any) -> None:
    _, table = place
    with pytest.raises(toroid.MissingError, match="no column wage; it has salary, dept"):
        table.agg(total=col("wage").sum()).run()
    with pytest.raises(TypeError, match="is no sum, count or mean"):
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
