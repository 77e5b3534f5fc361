"""Pictures of graphs: well-formed, complete, readable, and the same every time."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree

import numpy as np
import pytest
import toroid
from toroid._picture import Part, picture

SVG = "{http://www.w3.org/2000/svg}"


@toroid.table(out=toroid.u4)
def root(x: toroid.u8) -> int:
    return int(np.sqrt(x))


@toroid.program
def several(x: toroid.u4, y: toroid.u4):
    product = x * y
    return {"root": root(product), "less": (x - y < 3) & (product != 7)}


@toroid.program
def wide(x: toroid.u4):
    """A sum of more functions than a layer has room for."""
    return sum(x.table(lambda number, place=place: number * place % 16) for place in range(1, 31))


def boxes(drawn: str) -> dict[str, tuple[str, list[str], tuple[float, float, float, float]]]:
    """Kind, lines and place of each box, by its first line."""
    found = {}
    for group in ElementTree.fromstring(drawn).iter(f"{SVG}g"):
        rect, lines = group.find(f"{SVG}rect"), [text.text or "" for text in group.iter(f"{SVG}text")]
        assert rect is not None
        x, y, width, height = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
        found[lines[0]] = (group.get("class", ""), lines, (x, y, x + width, y + height))
    return found


def edges(drawn: str) -> list[tuple[float, float, float, float]]:
    """Where the lines begin and end."""
    ways = [path.get("d", "").replace("M", "").split() for path in ElementTree.fromstring(drawn).iter(f"{SVG}path")]
    return [(float(way[0]), float(way[1]), float(way[-2]), float(way[-1])) for way in ways]


def test_every_value_and_every_edge_is_there() -> None:
    drawn = several.explain(params="message14", format="svg")
    found = boxes(drawn)
    assert {first: kind for first, (kind, _, _) in found.items()} == {
        "x": "input",
        "y": "input",
        "_0 = x * y": "function",
        "_1 = table(_0, 226 entries)": "function",
        "_2 = x - y": "linear",
        "_3 = _2 < 3": "function",
        "_4 = _0 != 7": "function",
        "_5 = _3 & _4": "function",
        "root = _1": "output",
        "less = _5": "output",
    }
    assert found["_2 = x - y"][1][1] == "-15..15, 5 bits"
    assert found["_0 = x * y"][1][1] == "0..225, 8 bits"

    def at(x: float, y: float, side: int) -> str:
        (first,) = (first for first, (_, _, place) in found.items() if abs((place[0] + place[2]) / 2 - x) < 1 and abs(place[side] - y) < 1)
        return first.split(" ")[0]

    # From the lower side of a box to the upper side of the other.
    assert {(at(*edge[:2], 3), at(*edge[2:], 1)) for edge in edges(drawn)} == {
        ("x", "_0"),
        ("y", "_0"),
        ("_0", "_1"),
        ("x", "_2"),
        ("y", "_2"),
        ("_2", "_3"),
        ("_0", "_4"),
        ("_3", "_5"),
        ("_4", "_5"),
        ("_1", "root"),
        ("_5", "less"),
    }


def test_functions_are_counted_as_the_cost_has_them() -> None:
    for params in ("message14", "message16"):
        compiled = several.compile(params=params)
        drawn = several.explain(params=params, format="svg")
        counts = [line.split() for _, lines, _ in boxes(drawn).values() for line in lines if " function" in line]
        assert sum(int(words[0]) for words in counts) == compiled.cost.bootstraps
        assert f"with {params}" in drawn


@pytest.mark.parametrize("program", [several, wide])
def test_boxes_do_not_overlap_and_stand_within_the_picture(program: toroid.Program) -> None:
    drawn = program._repr_svg_()
    places = [place for _, _, place in boxes(drawn).values()]
    root_of = ElementTree.fromstring(drawn)
    width, height = float(root_of.get("width", "")), float(root_of.get("height", ""))
    assert all(0 <= left and right <= width and 0 <= top and bottom <= height for left, top, right, bottom in places)
    for one, other in itertools.combinations(places, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1], (one, other)
    # Many boxes make a picture high, not endlessly wide.
    assert width < 5000


def test_a_picture_is_the_same_every_time() -> None:
    assert several.explain(params="message14", format="svg") == several.explain(params="message14", format="svg")
    assert several._repr_svg_() == several._repr_svg_()


def test_a_question_has_a_picture_and_other_formats_are_refused() -> None:
    client = toroid.Client.generate("tiny-wopbs")
    with toroid.open() as drive:
        table = drive.upload("table", client.encrypt({"a": np.array([1, 2])}, {"a": (0, 15)}))
        query = table.where(toroid.col("a") > 1).agg(n=toroid.count())
        assert any("sum(" in first for first in boxes(query.explain(format="svg")))
        with pytest.raises(ValueError, match="'text' or 'svg', not 'png'"):
            query.explain(format="png")
    with pytest.raises(ValueError, match="'text' or 'svg', not 'png'"):
        several.explain(format="png")


def test_a_question_that_compares_rows_has_a_picture_of_all_its_programs() -> None:
    client = toroid.Client.generate("tiny-wopbs")
    with toroid.open() as drive:
        table = drive.upload("table", client.encrypt({"a": np.array([3, 1, 2]), "b": np.array([1, 2, 0])}, {"a": (0, 15), "b": (0, 3)}))
        query = table.where(toroid.col("b") > 0).agg(n=toroid.count(), least=toroid.col("a").min())
        compiled = query.compile()
        drawn = query.explain(format="svg")
        with pytest.raises(ValueError, match="'text' or 'svg', not 'png'"):
            query.explain(format="png")
        lone = table.select("a").top_k(1, "a").explain(format="svg")
    root_of = ElementTree.fromstring(drawn)
    height, width = float(root_of.get("height", "")), float(root_of.get("width", ""))
    texts = [text.text or "" for text in root_of.iter(f"{SVG}text")]
    assert texts[0].startswith(f"{compiled.comparisons} comparisons in {compiled.rounds} rounds")
    titles = [text for text in texts if text.startswith("program ")]
    assert titles == [f"program {number}, of {rows} rows or pairs of rows" for number, (rows, _) in enumerate(compiled.programs)]
    # Aggregates, what is compared, and the comparison, one below the other.
    assert len(titles) == 3
    parts = root_of.findall(f"{SVG}g")
    moved = [float(part.get("transform", "").removeprefix("translate(0 ").removesuffix(")")) for part in parts]
    assert moved == sorted(set(moved))
    assert 0 < moved[0] < moved[-1] < height
    for part, top, bottom in zip(parts, moved, [*moved[1:], height], strict=True):
        for rect in part.iter(f"{SVG}rect"):
            x, y, wide, high = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
            assert 0 <= x and x + wide <= width and 0 <= y and top + y + high <= bottom
    counts = [int(line.split()[0]) for line in texts if line.endswith((" function", " functions")) and line.split()[0].isdigit()]
    assert sum(counts) == sum(compiled.cost.bootstraps for _, compiled in compiled.programs)
    assert "max(" in lone


def test_functions_without_a_name_count_for_the_last_value_of_their_line() -> None:
    graph = 'input x: 0..3 @ "a.py":1\ny = x < 2 @ "a.py":2\nz = y & x @ "a.py":2\noutput r = z @ "a.py":3\n'
    program = "; a.py:2: the comparison\nbootstrap [t0, t1], [s0, s1], in0\n; a.py:2: y\nbootstrap t2, s2"
    found = boxes(picture(Part(graph, "a title & more", program)))
    assert found["y = x < 2"][1][2:] == ["1 function"]
    assert found["z = y & x"][1][2:] == ["2 functions"]
