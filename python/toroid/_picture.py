"""Pictures of graphs: a box for each value, in layers from the inputs at the top to the outputs at the bottom."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from toroid import _core

_STATEMENT = re.compile(r'(?P<head>.*?)(?: @ "(?P<file>[^"]*)":(?P<line>\d+))?')
_CONSTANT = re.compile(r"(?P<name>\w+) = (?P<number>-?\d+)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_LINEAR = re.compile(r"-?(\d+\*)?\w+( [+-] (\d+\*)?\w+)*")
_TABLE = re.compile(r"\[.*\]")
_BOOTSTRAP = re.compile(r"bootstrap (?:\[(?P<several>[^\]]*)\]|\w+), .*")

#: Pixels: of a letter and a line, around the text of a box, between boxes, between layers, around the picture.
LETTER, LINE, PAD, GAP, LAYER, MARGIN = 7.3, 16, 8, 18, 46, 20
#: The most letters of a line in a box; all of it is in its tooltip.
LETTERS = 40
#: The most boxes of a layer but for outputs: more of them stand in the next.
BOXES = 8
FILLS = {"input": "#dbe9f9", "linear": "#f1f1f1", "function": "#fde6c8", "output": "#dcf1dc"}


@dataclass
class _Box:
    """A value, an output, or a bend of an edge that passes a layer."""

    lines: list[str] = field(default_factory=list)
    kind: str = ""
    tooltip: str = ""
    layer: int = 0
    x: float = 0.0

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * LETTER + 2 * PAD if self.lines else 4.0

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + PAD


@dataclass(frozen=True)
class Part:
    """A graph of a picture."""

    #: In text form.
    graph: str
    #: What stands above it; `; ` parts its lines.
    title: str = ""
    #: The text of the drive's program, whose bootstraps are counted at the values that its comments name.
    program: str = ""


def picture(*parts: Part, title: str = "") -> str:
    """Graphs as an SVG, one below the other, under a title whose lines `; ` parts."""
    drawings = [_titled(title)] if title else []
    drawings += [_drawn(part) for part in parts]
    width = max((drawing.width for drawing in drawings), default=0.0)
    height = sum(drawing.height for drawing in drawings)
    size = f'width="{width:.0f}" height="{height:.0f}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="12">',
        f'<rect {size} fill="white"/>',
    ]
    y = 0.0
    for drawing in drawings:
        # Only what stands below another drawing moves.
        out += [f'<g transform="translate(0 {y:.0f})">', *drawing.body, "</g>"] if y else drawing.body
        y += drawing.height
    out.append("</svg>")
    return "\n".join(out) + "\n"


@dataclass
class _Drawing:
    """Elements of an SVG, and the room that they take."""

    width: float
    height: float
    body: list[str]


def _titled(title: str) -> _Drawing:
    """Lines of text."""
    lines = [line for line in title.split("; ") if line]
    body = [f'<text x="{MARGIN}" y="{MARGIN + place * LINE}">{escape(line)}</text>' for place, line in enumerate(lines)]
    return _Drawing(max((len(line) for line in lines), default=0) * LETTER + 2 * MARGIN, MARGIN + len(lines) * LINE, body)


def _drawn(part: Part) -> _Drawing:
    boxes, edges = _boxes(part.graph, part.program)
    ways = _layered(boxes, edges)
    layers: list[list[_Box]] = [[] for _ in range(1 + max(box.layer for box in boxes))]
    for box in boxes:
        layers[box.layer].append(box)
    _place(layers, ways)
    return _drawing(layers, ways, _titled(part.title))


def _functions(program: str, values: Mapping[str, str]) -> dict[str, int]:
    """How many functions bootstraps apply for each value, by its name. What the compiler made without a name counts for the last value of its line.

    Args:
        program: The text of the drive's program.
        values: The places of the values in the user's code, by their names.
    """
    found: dict[str, int] = {}
    last = {place: name for name, place in values.items()}
    value = ""
    for line in program.splitlines():
        text = line.strip()
        if text.startswith(";"):
            place, _, name = text.removeprefix("; ").rpartition(": ")
            value = name if name in values else last.get(place, name)
        elif match := _BOOTSTRAP.fullmatch(text):
            found[value] = found.get(value, 0) + (match["several"] or "").count(",") + 1
    return found


def _boxes(graph: str, program: str) -> tuple[list[_Box], list[tuple[_Box, _Box]]]:
    """The boxes of a graph's statements, in their order, and the edges between them. Constants stand in the boxes that take them."""
    named: dict[str, _Box] = {}
    constants: dict[str, str] = {}
    boxes: list[_Box] = []
    edges: list[tuple[_Box, _Box]] = []
    statements = []
    for statement in graph.splitlines():
        match = _STATEMENT.fullmatch(statement)
        if match is not None and match["head"].strip():
            statements.append((match["head"], f"{match['file']}:{match['line']}" if match["file"] is not None else ""))
    values = {head.split(" = ")[0]: place for head, place in statements if not head.startswith(("input ", "output ")) and not _CONSTANT.fullmatch(head)}
    functions = _functions(program, values)
    intervals = _core.Statements(graph)
    for head, place in statements:
        if head.startswith("input "):
            name, interval = head.removeprefix("input ").split(": ")
            low, high = map(int, interval.split(".."))
            box = _Box([name, _width(low, high)], "input")
            named[name] = box
        else:
            if constant := _CONSTANT.fullmatch(head):
                constants[constant["name"]] = constant["number"]
                continue
            name, expression = head.removeprefix("output ").split(" = ", 1)
            shown = _NAME.sub(lambda match: constants.get(match[0], match[0]), _shown(expression))
            box = _Box([f"{name} = {shown}"], "output")
            if not head.startswith("output "):
                box.lines.append(_width(*intervals.interval(name)))
                applied = functions.get(name, 0)
                box.kind = "linear" if not applied and _LINEAR.fullmatch(expression) else "function"
                if applied:
                    box.lines.append(_counted(applied, "function"))
            operands = dict.fromkeys(match[0] for match in _NAME.finditer(_TABLE.sub("", expression)))
            edges.extend((named[operand], box) for operand in operands if operand in named)
            if not head.startswith("output "):
                named[name] = box
        box.tooltip = " ".join(filter(None, [*box.lines, place and f"({place})"]))
        box.lines = [line if len(line) <= LETTERS else line[: LETTERS - 1] + "…" for line in box.lines]
        boxes.append(box)
    return boxes, edges


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _shown(expression: str) -> str:
    """An expression without factors of one, and with the number of a table's entries in their place."""
    table = _TABLE.search(expression)
    if table is not None:
        entries = table[0].count(",") + 1
        return expression[: table.start()] + f"{entries} entries)"
    return re.sub(r"\b1\*", "", expression)


def _width(low: int, high: int) -> str:
    """An interval and the bits of its numbers."""
    bits = max(1, max((end if end >= 0 else ~end).bit_length() for end in (low, high)) + (low < 0))
    return f"{low}..{high}, {_counted(bits, 'bit')}"


def _layered(boxes: list[_Box], edges: list[tuple[_Box, _Box]]) -> list[list[_Box]]:
    """Gives every box its layer, adds bends, and returns the way of each edge."""
    sources: dict[int, list[_Box]] = {}
    for source, target in edges:
        sources.setdefault(id(target), []).append(source)
    filled: dict[int, int] = {}
    # Statements stand behind those that they need.
    for box in boxes:
        box.layer = max((source.layer + 1 for source in sources.get(id(box), [])), default=0)
        while box.kind != "output" and filled.get(box.layer, 0) >= BOXES:
            box.layer += 1
        filled[box.layer] = filled.get(box.layer, 0) + 1
    last = max(box.layer for box in boxes)
    for box in boxes:
        if box.kind == "output":
            box.layer = last
    ways = []
    for source, target in edges:
        bends = [_Box(layer=layer) for layer in range(source.layer + 1, target.layer)]
        boxes.extend(bends)
        ways.append([source, *bends, target])
    return ways


def _place(layers: list[list[_Box]], ways: list[list[_Box]]) -> None:
    """Orders the boxes of each layer so that edges cross seldom, and sets them apart, near those that they are joined with."""
    above: dict[int, list[_Box]] = {}
    below: dict[int, list[_Box]] = {}
    for way in ways:
        for source, target in itertools.pairwise(way):
            above.setdefault(id(target), []).append(source)
            below.setdefault(id(source), []).append(target)
    for layer in layers:
        _apart(layer, [place * 100.0 for place in range(len(layer))])
    for sweep in range(12):
        down = sweep % 2 == 0
        joined = above if down else below
        for layer in layers if down else reversed(layers):
            wanted = {}
            for box in layer:
                near = joined.get(id(box), [])
                wanted[id(box)] = sum(each.x for each in near) / len(near) if near else box.x
            if sweep < 8:
                layer.sort(key=lambda box, wanted=wanted: wanted[id(box)])  # type: ignore[misc]
            _apart(layer, [wanted[id(box)] for box in layer])


def _apart(layer: list[_Box], wanted: list[float]) -> None:
    """Sets boxes near the places that they want, in their order and without overlaps: the mean of pushing them to the right and to the left."""
    right, edge = [], float("-inf")
    for box, x in zip(layer, wanted, strict=True):
        right.append(max(x, edge + box.width / 2))
        edge = right[-1] + box.width / 2 + GAP
    left, edge = [], float("inf")
    for box, x in zip(reversed(layer), reversed(wanted), strict=True):
        left.append(min(x, edge - box.width / 2))
        edge = left[-1] - box.width / 2 - GAP
    for box, one, other in zip(layer, right, reversed(left), strict=True):
        box.x = (one + other) / 2


def _drawing(layers: list[list[_Box]], ways: list[list[_Box]], title: _Drawing) -> _Drawing:
    left = min(box.x - box.width / 2 for layer in layers for box in layer) - MARGIN
    right = max(box.x + box.width / 2 for layer in layers for box in layer) + MARGIN
    width = max(right - left, title.width)
    shift = (width - (right - left)) / 2 - left
    y = title.height
    tops: list[tuple[float, float]] = []
    for layer in layers:
        height = max(box.height for box in layer)
        tops.append((y, height))
        y += height + LAYER
    height = y - LAYER + MARGIN
    out = list(title.body)

    def ends(box: _Box) -> tuple[float, float, float]:
        """The middle of a box, and its upper and lower side; a bend goes through all of its layer."""
        top, room = tops[box.layer]
        if not box.lines:
            return box.x + shift, top, top + room
        return box.x + shift, top + (room - box.height) / 2, top + (room + box.height) / 2

    for way in ways:
        x, _, y = ends(way[0])
        path = f"M{x:.1f} {y:.1f}"
        for box in way[1:]:
            to, top, bottom = ends(box)
            half = (y + top) / 2
            path += f" C{x:.1f} {half:.1f} {to:.1f} {half:.1f} {to:.1f} {top:.1f}"
            if not box.lines:
                path += f" V{bottom:.1f}"
            x, y = to, bottom
        out.append(f'<path d="{path}" fill="none" stroke="#888"/>')
    for layer in layers:
        for box in layer:
            if not box.lines:
                continue
            x, top, _ = ends(box)
            out.append(f'<g class="{box.kind}"><title>{escape(box.tooltip)}</title>')
            out.append(
                f'<rect x="{x - box.width / 2:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="4" '
                f'fill="{FILLS[box.kind]}" stroke="#555"/>'
            )
            for place, line in enumerate(box.lines):
                out.append(f'<text x="{x:.1f}" y="{top + PAD / 2 + (place + 0.75) * LINE:.1f}" text-anchor="middle">{escape(line)}</text>')
            out.append("</g>")
    return _Drawing(width, height, out)
