"""Where the rows of a table are: shards on drives, and the ranges of rows that follow from them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from toroid._errors import DriveError

# A shard on a drive is a table of this name: the table, when it was uploaded, the shard's rows, how many the table has with them, and on how many drives
# they are to be.
_SHARD = re.compile(r"(?P<table>.+) (?P<upload>[0-9a-f]{16}) rows (?P<first>\d{1,18})\.\.(?P<end>\d{1,18}) of (?P<total>\d{1,18}) x(?P<copies>\d{1,18})", re.ASCII)

Rows = tuple[int, int]


class MissingRows(DriveError):
    """No drive could compute some rows, or has them. `rows` are their ranges, `reasons` what was wrong with each drive, by its location."""

    rows: tuple[Rows, ...] = ()
    reasons: Mapping[str, str] = {}


@dataclass(frozen=True, order=True)
class Shard:
    """Rows of a table from `first` up to, and without, `end`, as a drive stores them. `total` is the number of rows of the table that they were added to,
    themselves included: rows that were appended count once all of them are there. `copies` is the number of drives that are to have them."""

    table: str
    upload: str
    first: int
    end: int
    total: int
    copies: int

    @property
    def name(self) -> str:
        """The name on a drive."""
        return f"{self.table} {self.upload} rows {self.first}..{self.end} of {self.total} x{self.copies}"

    @staticmethod
    def of(name: str) -> Shard | None:
        """The shard of a name on a drive; none where it is that of no shard."""
        match = _SHARD.fullmatch(name)
        if match is None:
            return None
        first, end, total, copies = (int(match[name]) for name in ("first", "end", "total", "copies"))
        # Names are what drives say.
        return Shard(match["table"], match["upload"], first, end, total, copies) if first < end <= total and copies > 0 else None

    def covers(self, first: int, end: int) -> bool:
        """Whether it has these rows."""
        return self.first <= first and end <= self.end

    def part(self, first: int, end: int) -> Shard:
        """The shard of some of its rows."""
        return replace(self, first=first, end=end)


@dataclass(frozen=True)
class Cell:
    """Rows that the same drives have: the locations of these, each with the shard there."""

    first: int
    end: int
    held: tuple[tuple[str, Shard], ...]

    @property
    def drives(self) -> tuple[str, ...]:
        """The locations."""
        return tuple(drive for drive, _ in self.held)

    @property
    def copies(self) -> int:
        """On how many drives the rows are to be."""
        return max(shard.copies for _, shard in self.held)

    def on(self, drive: str) -> Shard | None:
        """The shard on a drive, if it has the rows."""
        return next((shard for location, shard in self.held if location == drive), None)


def rows_of(shards: Iterable[Shard], is_all: bool) -> int:
    """The rows of a table that consists of shards: without those of an append that ended early, if that is certain because they are all there are."""
    totals = sorted({shard.total for shard in shards}, reverse=True)
    for total in totals if is_all else ():
        if not gaps((0, total), [(shard.first, shard.end) for shard in shards if shard.total <= total]):
            return total
    return totals[0]


def cells_of(held: Mapping[str, Iterable[Shard]], total: int) -> tuple[Cell, ...]:
    """The rows of a table by the drives that have them, in their order. Rows that no drive has are in none."""
    own = {drive: sorted((shard for shard in shards if shard.total <= total), key=lambda shard: shard.first - shard.end) for drive, shards in held.items()}
    cuts = sorted({place for shards in own.values() for shard in shards for place in (shard.first, shard.end)})
    cells: list[Cell] = []
    for first, end in itertools.pairwise(cuts):
        on = ((drive, next((shard for shard in shards if shard.covers(first, end)), None)) for drive, shards in own.items())
        there = tuple((drive, shard) for drive, shard in on if shard is not None)
        if not there:
            continue
        # Where the same shards go on, the cut was that of a shard that another covers.
        if cells and cells[-1].end == first and cells[-1].held == there:
            first = cells.pop().first
        cells.append(Cell(first, end, there))
    return tuple(cells)


def gaps(rows: Rows, ranges: Iterable[Rows]) -> list[Rows]:
    """What ranges leave out."""
    found, start = [], rows[0]
    for first, end in [*sorted(ranges), (rows[1], rows[1])]:
        if first > start:
            found.append((start, first))
        start = max(start, end)
    return found


def why(reasons: Mapping[str, object]) -> str:
    """What is wrong with drives in errors, by their locations."""
    return "; ".join(f"{drive}: {reason}" for drive, reason in reasons.items())


def shown(rows: Sequence[Rows]) -> str:
    """Ranges of rows in errors."""
    return ", ".join(f"{first}..{end}" for first, end in rows)


def cut(rows: int, count: int) -> Iterator[Rows]:
    """Rows in so many ranges of nearly the same size."""
    return itertools.pairwise(rows * number // count for number in range(count + 1))
