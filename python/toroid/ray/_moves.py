"""Rows that go from drive to drive, so that drives can join a cluster, leave it and fill up: what is to go where, and how it gets there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toroid._errors import DriveError, FullError
from toroid._progress import Report
from toroid.ray._places import Cell, Rows, Shard, cells_of

if TYPE_CHECKING:
    from toroid.ray._table import ShardedTable

#: Drives have rows enough alike when they differ from the mean by no more than this share of it.
TOLERANCE = 1 / 16


@dataclass(frozen=True)
class Move:
    """Rows that a drive is to get, that one is to give up, or both."""

    first: int
    end: int
    source: str | None
    target: str | None


@dataclass
class _Piece:
    """Rows that the same drives have, as far as the plan is."""

    first: int
    end: int
    copies: int
    on: list[str]

    @property
    def size(self) -> int:
        return self.end - self.first


class Plan:
    """What is to go where, so that all rows are on as many drives as they are to be, and drives have nearly as many rows each.

    Args:
        cells: The rows by the drives that have them.
        drives: The drives that are to have rows; others give theirs up.
        full: Those of them that take no more.

    Raises:
        FullError: Some rows have no drive to go to.
    """

    def __init__(self, cells: Sequence[Cell], drives: Sequence[str], full: Collection[str] = ()) -> None:
        self.moves: list[Move] = []
        self._drives = list(drives)
        self._open = [drive for drive in drives if drive not in full]
        self._pieces = [_Piece(cell.first, cell.end, min(cell.copies, len(drives)), list(cell.drives)) for cell in cells]
        self._load = dict.fromkeys(self._drives, 0)
        for piece in self._pieces:
            for drive in piece.on:
                self._load[drive] = self._load.get(drive, 0) + piece.size
        self._share = sum(piece.size * piece.copies for piece in self._pieces) / len(self._drives)
        # Fewer rows are not worth a move.
        self._least = max(1, int(TOLERANCE * self._share))
        self._copy()
        self._even()

    def _copy(self) -> None:
        """Gives all rows as many copies as they are to have, on drives that stay."""
        pieces, self._pieces = self._pieces, []
        while pieces:
            piece = pieces.pop()
            leaving = [drive for drive in piece.on if drive not in self._drives]
            staying = len(piece.on) - len(leaving)
            if staying < piece.copies:
                target = min((drive for drive in self._open if drive not in piece.on), key=lambda drive: self._load[drive], default=None)
                if target is None:
                    raise FullError(f"no drive of the cluster has room for the rows {piece.first}..{piece.end}")
                # No more than its share, as far as others can take the rest.
                size = int(self._share - self._load[target])
                if self._least <= size < piece.size and any(drive != target and drive not in piece.on for drive in self._open):
                    pieces.append(self._split(piece, size))
                self._go(piece, None, target)
                pieces.append(piece)
            elif staying > piece.copies:
                self._go(piece, max((drive for drive in piece.on if drive in self._drives), key=lambda drive: self._load[drive]), None)
                pieces.append(piece)
            else:
                # Those that leave keep what they have until everything is elsewhere.
                piece.on = [drive for drive in piece.on if drive in self._drives]
                self._pieces.append(piece)

    def _even(self) -> None:
        """Moves rows from drives that have many to those that have few."""
        while (found := self._surplus()) is not None:
            piece, size, source, target = found
            if size < piece.size:
                piece = self._split(piece, piece.size - size)
                self._pieces.append(piece)
            self._go(piece, source, target)

    def _surplus(self) -> tuple[_Piece, int, str, str] | None:
        """Rows that one drive has too many of, and another one too few: the piece, how many of it, and the drives."""
        for source in sorted(self._drives, key=lambda drive: -self._load[drive]):
            for target in sorted(self._open, key=lambda drive: self._load[drive]):
                apart = self._load[source] - self._load[target]
                movable = [piece for piece in self._pieces if source in piece.on and target not in piece.on]
                if apart < 2 * self._least or not movable:
                    continue
                surplus = int(min(self._load[source] - self._share, self._share - self._load[target]))
                largest = max(movable, key=lambda piece: piece.size)
                return largest, min(largest.size, surplus if surplus >= self._least else apart // 2), source, target
        return None

    @staticmethod
    def _split(piece: _Piece, size: int) -> _Piece:
        """Leaves a piece so many rows, and gives the others."""
        rest = _Piece(piece.first + size, piece.end, piece.copies, list(piece.on))
        piece.end = rest.first
        return rest

    def _go(self, piece: _Piece, source: str | None, target: str | None) -> None:
        if source is not None:
            piece.on.remove(source)
            self._load[source] -= piece.size
        if target is not None:
            piece.on.append(target)
            self._load[target] += piece.size
        self.moves.append(Move(piece.first, piece.end, source, target))


class Mover:
    """Moves rows of a table, one range after the other, while jobs run on them.

    At any moment all rows of the table are on drives, in shards that are whole. A range is copied first, and compared with what its drive had; then the
    table's map of places changes at once, and jobs follow it; then the old copy is deleted. So what ends in between leaves at most a copy too many,
    which the next plan finds.
    """

    def __init__(self, table: ShardedTable, drives: Sequence[str], report: Report | None) -> None:
        self._table = table
        self._cluster = table.cluster
        self._drives = drives
        self._report = report
        self._held: dict[str, set[Shard]] = {location: set() for location in self._cluster.locations}
        for cell in table._cells:
            for drive, shard in cell.held:
                self._held.setdefault(drive, set()).add(shard)
        self._full: set[str] = set()

    def run(self) -> None:
        """Moves what is to be moved.

        Raises:
            FullError: Some rows have no drive to go to.
            DriveError: No drive gives some rows, or a copy is another one.
        """
        self._publish()
        self._discard_unused()
        done = 0
        while moves := Plan(self._table.cells, self._drives, self._full).moves:
            total = done + sum(move.end - move.first for move in moves)
            for move in moves:
                if not self._move(move):
                    break
                done += move.end - move.first
                if self._report is not None:
                    self._report("move", done, total)

    def leave(self) -> None:
        """Deletes what drives have that are to have no rows. One that does not answer keeps it."""
        gone = {drive: self._held.pop(drive) for drive in list(self._held) if drive not in self._drives}
        self._publish()
        for drive, shards in gone.items():
            for shard in shards:
                self._cluster._answer(drive, self._cluster._submit(drive, "discard", shard.name))

    def _move(self, move: Move) -> bool:
        """Moves a range; tells whether the plan goes on."""
        rows = (move.first, move.end)
        if move.target is not None and not self._copy(rows, move.target):
            return False
        if move.source is None:
            self._publish()
            return True
        return self._take(rows, move.source)

    def _copy(self, rows: Rows, target: str) -> bool:
        """Copies a range to a drive; tells whether there was room."""
        reasons: dict[str, Exception] = {}
        cell = next(cell for cell in self._table.cells if cell.first <= rows[0] and rows[1] <= cell.end)
        for drive, shard in cell.held:
            part = shard.part(*rows)
            # The rows go from drive to drive.
            status, sent = self._cluster._submit(drive, "kept_rows", shard.name, (rows[0] - shard.first, rows[1] - shard.first), None)
            answer = self._cluster._answer(drive, status)
            if not isinstance(answer, Exception):
                answer = self._cluster._answer(target, self._cluster._submit(target, "receive", part.name, sent, self._table.key_id))
            if isinstance(answer, FullError):
                self._full.add(target)
                return False
            if not isinstance(answer, Exception):
                self._held[target].add(part)
                return True
            reasons[drive] = answer
        error = DriveError(f"the rows {rows[0]}..{rows[1]} of table {self._table.name} were not copied to drive {target}: " + "; ".join(map(str, reasons.values())))
        error.add_note("All rows are where they were. Once the drives answer, rebalance() goes on.")
        raise error from next(iter(reasons.values()))

    def _take(self, rows: Rows, source: str) -> bool:
        """Takes a range from a drive that others have; tells whether the plan goes on."""
        old = next(shard for shard in self._held[source] if shard.covers(*rows))
        goes_on = True
        for rest in (old.part(old.first, rows[0]), old.part(rows[1], old.end)):
            if rest.first == rest.end or any(other != old and other.covers(rest.first, rest.end) for other in self._held[source]):
                continue
            answer = self._cluster._answer(source, self._cluster._submit(source, "keep", old.name, rest.name, (rest.first - old.first, rest.end - old.first), self._table.key_id))
            if isinstance(answer, FullError):
                # The drive has no room for both. What is left goes elsewhere, and comes back by the next plan.
                goes_on = False
                for part in self._parts(rest):
                    self._evacuate(part, source)
                continue
            if isinstance(answer, Exception):
                raise answer
            self._held[source].add(rest)
        self._held[source].discard(old)
        self._publish()
        self._cluster._ask(source, "discard", old.name)
        return goes_on

    def _parts(self, rest: Shard) -> Iterator[Rows]:
        """Rows of a shard by the cells that they are in."""
        for cell in self._table.cells:
            first, end = max(cell.first, rest.first), min(cell.end, rest.end)
            if first < end:
                yield first, end

    def _evacuate(self, rows: Rows, source: str) -> None:
        cell = next(cell for cell in self._table.cells if cell.first <= rows[0] and rows[1] <= cell.end)
        for target in self._drives:
            if target not in self._full and target not in cell.drives and self._copy(rows, target):
                return
        raise FullError(f"drive {source} is too full to part with some of its rows, and no other drive has room for the rows {rows[0]}..{rows[1]} of table {self._table.name}")

    def _publish(self) -> None:
        """Changes the map of places, which jobs look at, at once."""
        self._cluster._cells[self._table.name, self._table._upload] = cells_of(self._held, self._table.rows)

    def _discard_unused(self) -> None:
        """Deletes shards of the table that nobody reads: what moves, uploads and appends left that ended early."""
        for drive, names in self._cluster._shards_on_drives(self._table.name).items():
            for name in names:
                if Shard.of(name) not in self._held.get(drive, ()):
                    self._cluster._ask(drive, "discard", name)
