"""Tables over the drives of a cluster."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toroid import _core
from toroid._columns import EncryptedColumn, EncryptedTable, StoredColumn
from toroid._drive import BaseTable, Way
from toroid._errors import DriveError, OptionError, RowsError
from toroid._program import Compiled
from toroid._progress import Progress, reporter, twin
from toroid._query import EncryptedParts, Finish
from toroid._trace import index_of, integer_of
from toroid.ray._compare import Comparison
from toroid.ray._job import JOB_VERSION, Job
from toroid.ray._places import Cell, MissingRows, Rows, Shard, cut, shown, why
from toroid.ray._run import Run

if TYPE_CHECKING:
    from toroid._rounds import Rounds
    from toroid.ray._cluster import Cluster


def is_number(value: Any) -> bool:
    """Whether a value is a number, and no boolean."""
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass(frozen=True)
class _Settings:
    job: Path | None = None
    unit_seconds: float = 7.5
    unit_rows: int | None = None
    verify: float = 0.0


class ShardedTable(BaseTable):
    """A table over the drives of a cluster. Questions and programs run on it as on a table of one drive."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        columns: dict[str, StoredColumn],
        upload: str,
        cells: Sequence[Cell],
        silent: Mapping[str, str],
        settings: _Settings | None = None,
    ) -> None:
        super().__init__(name, columns)
        self.cluster = cluster
        # Rows that were uploaded later are another table, though its name is the same.
        self._upload = upload
        self._cells = tuple(cells)
        self._silent = dict(silent)
        self._settings = settings or _Settings()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The rows by the drives that have them now."""
        return self.cluster._cells.get((self.name, self._upload), self._cells)

    @property
    def shards(self) -> dict[Rows, tuple[str, ...]]:
        """The locations of the drives that have the rows from the first of a pair up to, and without, the second."""
        return {(cell.first, cell.end): cell.drives for cell in self.cells}

    def options(
        self,
        *,
        job: str | os.PathLike[str] | None = None,
        unit_seconds: float | None = None,
        unit_rows: int | None = None,
        verify: float | None = None,
    ) -> ShardedTable:
        """The same table with other ways to compute.

        Args:
            job: A file for results of ranges of rows, with which `resume`, or the same call, goes on after the process has ended. It has no secrets.
            unit_seconds: Seconds of one core that a unit of work is meant to take, by the cost of a row; 7.5 if not given.
            unit_rows: Rows of a unit of work, in place of that.
            verify: The share of the rows that up to three drives compute, for `client.decrypt` to compare; every row needs a
                second drive: upload with `replicas=2`, or with 3 to know which drive is wrong.

        Raises:
            DriveError: `verify` needs drives that do not answer.
        """
        if unit_seconds is not None and not (is_number(unit_seconds) and 0 < unit_seconds < math.inf):
            raise ValueError(f"unit_seconds is {unit_seconds!r}, and a unit takes some seconds, more than 0")
        if unit_rows is not None:
            try:
                unit_rows = index_of(unit_rows)
            except TypeError:
                raise TypeError(f"unit_rows is {unit_rows!r}, and a unit has a whole number of rows") from None
            if unit_rows < 1:
                raise ValueError(f"unit_rows is {unit_rows}, and a unit has at least one row")
        if verify is not None and not (is_number(verify) and 0 <= verify <= 1):
            raise ValueError(f"verify is {verify!r}, and a share of the rows lies from 0 to 1")
        changes: dict[str, Any] = {"unit_seconds": unit_seconds, "unit_rows": unit_rows, "verify": verify, "job": None if job is None else Path(job)}
        settings = replace(self._settings, **{name: value for name, value in changes.items() if value is not None})
        # Numbers of numpy do not go into the file of a job.
        settings = replace(settings, unit_seconds=float(settings.unit_seconds), verify=float(settings.verify))
        if settings.verify and any(len(cell.drives) < 2 for cell in self.cells):
            if self._silent:
                raise DriveError(f"verify needs a second drive with the rows, and drives are away ({why(self._silent)}); verify=0 compares nothing")
            raise ValueError("verify needs a second drive with the rows: upload the table with replicas=2, or 3 to know which drive is wrong")
        return ShardedTable(self.cluster, self.name, self.columns, self._upload, self._cells, self._silent, settings)

    def compute(
        self,
        compiled: Compiled,
        columns: Mapping[str, str],
        rows: Rows | None,
        progress: Progress,
        finish: Finish | None = None,
        *,
        way: Way = "auto",
    ) -> EncryptedParts:
        """Runs a program on the drives, in units of rows, sample by sample.

        Raises:
            OptionError: The way is by ciphertexts.
            MissingRows: No drive could compute some rows.
            ExistsError: The file of the job is that of another job.
        """
        if way == "ring":
            raise OptionError('the drives of a cluster go sample by sample: leave out way="ring"')
        first, end = self.chosen(rows)
        header = {
            "toroid job": JOB_VERSION,
            "locations": self.cluster.locations,
            "table": self.name,
            "upload": self._upload,
            "compiled": compiled.__reduce__()[1][0],
            "columns": dict(columns),
            "rows": [first, end],
            "unit_seconds": self._settings.unit_seconds,
            "unit_rows": self._settings.unit_rows,
            "verify": self._settings.verify,
            "finish": None if finish is None else asdict(finish),
        }
        with Job.open(self._settings.job, json.loads(json.dumps(header))) as job:
            run = Run(self, compiled, columns, (first, end), job)
            with self.cluster._figures.of(run):
                return run.run(progress)

    def compare(self, rounds: Rounds, log2_failure: float, progress: Progress) -> tuple[list[list[_core.EncryptedRows]], float]:
        """Does the rounds of a question that compares rows: idle drives take ranges of the pairs of a round.

        Raises:
            ValueError: The table has a file for its jobs, or rows are to be verified, which these questions know nothing of.
            DriveError: No drive could compare some pairs.
        """
        if self._settings.job is not None:
            raise ValueError("a question that compares rows keeps no results in a file: leave job out")
        if self._settings.verify:
            raise ValueError("rows that are compared with each other are not verified: leave verify out")
        run = Comparison(self, rounds, log2_failure)
        with self.cluster._figures.of(run):
            return run.all_rounds(progress), run.log2_failure

    def append(
        self, data: EncryptedTable | EncryptedColumn, *, shards: int = 1, replicas: int | None = None, progress: Progress = None
    ) -> None:
        """Puts rows behind those of the table, all of them or none. All drives have to answer.

        Args:
            data: Rows of the columns that the table has.
            shards: How many pieces they become, each on drives that have few rows.
            replicas: How many drives get each of them; as many as are to have each row of the table, if not given.
            progress: True for a line that shows how far it is, or a callable of the stage, the rows put and those in total.

        Raises:
            KeyMismatch: They have other columns than the table, or belong to another client.
            DriveError: A drive does not answer.
        """
        added = self._fitting(data)
        with self.cluster._changing[self.name]:
            self._append(added, shards, replicas)
        if (report := reporter(progress)) is not None:
            report("append", added.rows, added.rows)

    def _append(self, added: EncryptedTable, shards: int, replicas: int | None) -> None:
        current = self.cluster.table(self.name)
        if current._silent:
            away = why(current._silent)
            raise DriveError(f"rows are appended when all drives answer, since one may have rows of an append that ended early: {away}")
        if current._upload != self._upload:
            raise RowsError(f"table {self.name} was uploaded again since: look it up again")
        # Rows of different clients do not go together.
        for name, column in current.download((0, 1)).items():
            for own, other in zip(column.digits, added[name].digits, strict=True):
                _core.EncryptedRows.gather([(own, 0, 1), (other, 0, 1)])
        copies = min(cell.copies for cell in current.cells) if replicas is None else integer_of("replicas", replicas)
        shards = integer_of("shards", shards)
        drives = self.cluster._staying
        if not 1 <= copies <= len(drives) or not 1 <= shards <= added.rows:
            raise ValueError(f"there are from 1 to {len(drives)} replicas, as many as drives, and no more shards than rows")
        self._discard_incomplete(current.rows)
        total = current.rows + added.rows
        places = [Shard(self.name, self._upload, current.rows + first, current.rows + end, total, copies) for first, end in cut(added.rows, shards)]
        held = dict.fromkeys(self.cluster.locations, 0)
        for cell in current.cells:
            for drive in cell.drives:
                held[drive] = held.get(drive, 0) + cell.end - cell.first
        order = sorted(drives, key=lambda drive: held[drive])
        self.cluster._put(added, places, order, self.key_id)
        found = self.cluster.table(self.name)
        self.columns, self._cells, self._silent = found.columns, found._cells, found._silent
        self.cluster._cells[self.name, self._upload] = found._cells

    def _discard_incomplete(self, rows: int) -> None:
        """Deletes what an append that ended early left."""
        for location, names in self.cluster._shards_on_drives(self.name).items():
            for name in names:
                shard = Shard.of(name)
                if shard is not None and shard.upload == self._upload and shard.total > rows:
                    self.cluster._ask(location, "discard", name)

    def download(self, rows: Rows | None = None, progress: Progress = None) -> EncryptedTable:
        """The encrypted rows from the first of a pair up to, and without, the second; all if not given.

        Raises:
            MissingRows: No drive gives some rows.
        """
        first, end = self.chosen(rows)
        report = reporter(progress)
        parts: list[EncryptedTable] = []
        absent: list[Rows] = []
        reasons = dict(self._silent)
        start = first
        while start < end:
            cells = self.cells
            cell = next((cell for cell in cells if cell.end > start), None)
            if cell is None or cell.first > start:
                stop = end if cell is None else min(end, cell.first)
                absent.append((start, stop))
            else:
                stop = min(end, cell.end)
                found = self._rows_of(cell, (start, stop), reasons)
                if found is None and cells is not self.cells:
                    # They have moved meanwhile.
                    continue
                if found is None:
                    absent.append((start, stop))
                else:
                    parts.append(found)
            start = stop
            if report is not None:
                report("download", stop - first, end - first)
        if absent:
            text = f"no drive gives the rows {shown(absent)} of table {self.name}" + (f" ({why(reasons)})" if reasons else "")
            raise MissingRows(text, rows=tuple(absent), reasons=reasons)
        return EncryptedTable({name: EncryptedColumn(column.layout, _joined([part[name] for part in parts])) for name, column in self.columns.items()})

    def of_columns(self, names: Sequence[str]) -> ShardedTable:
        """The same table with some of its columns."""
        chosen = {name: self.columns[name] for name in names}
        return ShardedTable(self.cluster, self.name, chosen, self._upload, self._cells, self._silent, self._settings)

    aappend = twin(append)
    adownload = twin(download)

    def _rows_of(self, cell: Cell, rows: Rows, reasons: dict[str, str]) -> EncryptedTable | None:
        """Rows of the first drive that gives them; none, and the reasons, if none does."""
        for drive, shard in cell.held:
            own = (rows[0] - shard.first, rows[1] - shard.first)
            found = self.cluster._answer(drive, self.cluster._submit(drive, "rows", shard.name, own, list(self.columns)))
            if isinstance(found, EncryptedTable):
                return found
            reasons[drive] = str(found)
        return None

    def unit_rows(self, compiled: Compiled) -> int:
        """Rows of a unit of work."""
        size = self._settings.unit_rows
        if size is None:
            size = max(1, int(self._settings.unit_seconds / max(compiled.cost.seconds_per_row, 1e-6)))
            if compiled.group is not None and size > compiled.group:
                # No more rows of results than the sums of whole groups have.
                size -= size % compiled.group
        return size


def _joined(columns: Sequence[EncryptedColumn]) -> tuple[_core.EncryptedRows, ...]:
    """The digits of columns, one behind the other."""

    def digits() -> Iterator[_core.EncryptedRows]:
        for parts in zip(*(column.digits for column in columns), strict=True):
            yield _core.EncryptedRows.gather([(part, 0, len(part)) for part in parts])

    return tuple(digits())
