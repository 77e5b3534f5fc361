"""What is under way, as figures: of a cluster, and of a served drive by the address of its metrics; as text, as HTML for notebooks, and watched."""

from __future__ import annotations

import html
import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Real
from typing import Any, Protocol

from toroid import _notebook
from toroid._errors import DriveError
from toroid._notebook import Output
from toroid._progress import twin
from toroid._text import check_text

__all__ = ["ClusterStatus", "DriveStatus", "JobStatus", "ServedStatus", "Status", "astatus", "status", "watch"]

#: Seconds for an answer of a drive.
PATIENCE = 5.0
#: The most bytes of an answer: some thousands of programs and hosts.
MOST_BYTES = 16 << 20


class Status(Protocol):
    """Figures of one moment. `str` gives a text for terminals; a notebook shows them as tables."""

    def to_json(self) -> dict[str, Any]:
        """The figures as the page in the browser gets them."""
        ...

    def _repr_html_(self) -> str: ...


class Watched(Protocol):
    """What has figures, such as a cluster."""

    def status(self) -> Status:
        """The figures of now."""
        ...


@dataclass(frozen=True)
class DriveStatus:
    """A drive of a cluster, or a node that computes for drives, and what it does."""

    #: The location, or the name of a node.
    name: str
    #: `drive`: it has rows; `compute`: it takes rows from drives.
    role: str = "drive"
    #: `idle`, `computing`, `silent` (it does not answer), `lost` (it has failed too often for the job), or another word, such as `leaving`.
    state: str = "idle"
    #: What it computes, such as `staff`; None if it does nothing.
    work: str | None = None
    #: The rows of that, from the first up to, and without, the second.
    rows: tuple[int, int] | None = None
    #: Seconds since it began that.
    seconds: float | None = None
    #: Rows and units of work that it has done.
    rows_done: int = 0
    units_done: int = 0
    #: Calls that failed, for whatever reason.
    failures: int = 0
    #: Why the last one failed.
    reason: str | None = None


@dataclass(frozen=True)
class JobStatus:
    """A question or program that runs on a cluster."""

    #: The table.
    table: str
    #: The rows that it is about, and those done.
    rows: int
    rows_done: int
    #: Units of work that no drive has taken, that drives compute, and that are done.
    units_waiting: int = 0
    units_running: int = 0
    units_done: int = 0
    #: Units that were given out again after a failure, and those that another drive took over from a slow one.
    retries: int = 0
    stolen: int = 0
    #: Seconds since it began, and those left as far as they can be told.
    seconds: float = 0.0
    seconds_left: float | None = None
    #: `running`, `done`, `failed`.
    state: str = "running"


@dataclass(frozen=True)
class ClusterStatus:
    """What a cluster does: which drive computes what, and how far its jobs are."""

    drives: Sequence[DriveStatus]
    jobs: Sequence[JobStatus] = ()
    #: Seconds since the cluster was opened.
    seconds: float = 0.0
    #: Figures are not measured but simulated.
    simulated: bool = False

    def to_json(self) -> dict[str, Any]:
        """The figures as the page in the browser gets them."""
        return {"kind": "cluster", **asdict(self)}

    def __str__(self) -> str:
        return _as_text(self._title(), self._tables())

    def _repr_html_(self) -> str:
        return _as_html(self._title(), self._tables())

    def _title(self) -> str:
        busy = sum(drive.state == "computing" for drive in self.drives)
        return f"{busy} of {len(self.drives)} drives and nodes compute" + (", simulated" if self.simulated else "")

    def _tables(self) -> list[_Table]:
        jobs = _Table("Jobs", ("table", "state", "rows", "units", "retries", "stolen", "time", "left"))
        for job in self.jobs:
            units = f"{job.units_done} done, {job.units_running} running, {job.units_waiting} waiting"
            done = _share(job.rows_done, job.rows)
            jobs.add(job.table, job.state, done, units, job.retries, job.stolen, _time(job.seconds), _time(job.seconds_left))
        drives = _Table("Drives", ("name", "role", "state", "work", "for", "rows done", "units", "failures", "last failure"))
        for drive in self.drives:
            work = drive.work or ""
            if drive.rows is not None:
                work += f" {drive.rows[0]}..{drive.rows[1]}"
            counts = (drive.rows_done, drive.units_done, drive.failures)
            drives.add(drive.name, drive.role, drive.state, work.strip(), _time(drive.seconds), *counts, drive.reason or "")
        return [jobs, drives]


@dataclass
class _Table:
    """Rows of cells under names."""

    title: str
    names: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        self.rows.append(tuple(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells))


def _as_text(title: str, tables: Sequence[_Table]) -> str:
    lines = [title]
    for table in tables:
        if not table.rows:
            continue
        widths = [max(len(cell) for cell in column) for column in zip(table.names, *table.rows, strict=True)]
        lines.append("")
        lines.extend("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (table.names, *table.rows))
    # What a drive says must not steer the terminal.
    return "\n".join("".join(character if character.isprintable() else " " for character in line) for line in lines)


def _as_html(title: str, tables: Sequence[_Table]) -> str:
    parts = [f"<p><strong>{html.escape(title)}</strong></p>"]
    for table in tables:
        if not table.rows:
            continue
        parts.append(f"<table><caption>{html.escape(table.title)}</caption><thead><tr>")
        parts.extend(f'<th scope="col">{html.escape(name)}</th>' for name in table.names)
        parts.append("</tr></thead><tbody>")
        parts.extend("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
        parts.append("</tbody></table>")
    return "".join(parts)


def _share(done: int, total: int) -> str:
    return f"{done:,} of {total:,} ({100 * done // total if total else 100} %)"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


@dataclass(frozen=True)
class ServedStatus:
    """What the drives of a server do, as `toroid drive serve --metrics` tells it."""

    #: The figures, as the documentation of the command line has them.
    figures: Mapping[str, Any]
    #: Those of a moment before, from which rates follow.
    earlier: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The figures as the page in the browser gets them."""
        return dict(self.figures)

    def rate(self, drive: int, name: str) -> float | None:
        """How much a counter of a drive, such as `rows` or `bootstraps`, rose a second; None without figures of before."""
        if self.earlier is None:
            return None
        seconds = self.figures["uptime_seconds"] - self.earlier["uptime_seconds"]
        # A server that was started again counts from 0.
        if seconds <= 0 or len(self.earlier["drives"]) != len(self.figures["drives"]):
            return None
        risen = self.figures["drives"][drive][name] - self.earlier["drives"][drive][name]
        return float(risen / seconds)

    def __str__(self) -> str:
        return _as_text(self._title(), self._tables())

    def _repr_html_(self) -> str:
        return _as_html(self._title(), self._tables())

    def _title(self) -> str:
        figures = self.figures
        state = "stopping" if figures["stopping"] else "serving" if figures["ok"] else "a drive is read-only"
        memory = figures["memory"]["process_bytes"]
        used = "" if memory is None else f", {_bytes(memory)} of memory"
        commands = f"{figures['connections']['now']} connections, {figures['commands']['in_flight']} commands in flight"
        return f"Toroid {figures['version']}, {state} for {_time(figures['uptime_seconds'])}: {commands}{used}"

    def _tables(self) -> list[_Table]:
        names = ("drive", "running", "waiting", "rows/s", "bootstraps/s", "pages in/s", "pages out/s", "samples", "keys", "space", "failures")
        drives = _Table("Drives", names)
        running = _Table("Programs under way", ("drive", "host", "program", "rows", "bootstraps", "for", "left"))
        tenants = _Table("Tenants", ("drive", "host", "programs", "rows", "bootstraps", "read", "written", "failures"))
        errors = _Table("Last errors", ("drive", "number", "status", "reason"))
        for place, drive in enumerate(self.figures["drives"]):
            name = f"{drive['subsystem']} {drive['nsid']}"
            rates = [self.rate(place, counter) for counter in ("rows", "bootstraps", "pages_in", "pages_out")]
            memory, space, programs = drive["memory"], drive["space"], drive["programs"]
            drives.add(
                name,
                programs["running"],
                programs["waiting"],
                *("" if rate is None else f"{rate:,.1f}" for rate in rates),
                f"{_bytes(memory['samples_bytes'])} of {_bytes(memory['samples_limit'])}",
                f"{_bytes(memory['keys_bytes'])} of {_bytes(memory['keys_limit'])}",
                _bytes(space["bytes"]) if space["used_bytes"] is None else f"{_bytes(space['used_bytes'])} of {_bytes(space['bytes'])}",
                programs["failed"],
            )
            for run in drive["running"]:
                rows = _share(run["rows_done"], run["rows"])
                running.add(name, run["host"], run["program"], rows, run["bootstraps_done"], _time(run["seconds"]), _time(run["seconds_left"]))
            for host in drive["hosts"]:
                traffic = (_bytes(host["read_bytes"]), _bytes(host["written_bytes"]), host["failures"])
                tenants.add(name, host["host"], host["programs"], host["rows"], host["bootstraps"], *traffic)
            for error in drive["errors"]:
                errors.add(name, error["count"], error["status"], error["reason"])
        return [drives, running, tenants, errors]


def status(address: str | int) -> ServedStatus:
    """The figures of a served drive.

    Args:
        address: The address of its metrics: `HOST:PORT` or a port of this machine, as `toroid drive serve --metrics` takes it, or the URL that it prints.

    Raises:
        DriveError: It does not answer, or it is no drive.
        TypeError: The address is neither text nor a number.
        ValueError: It is none of metrics.
    """
    return ServedStatus(_asked(_place(address)))


astatus = twin(status)


def _place(address: str | int) -> str:
    if not isinstance(address, str | int) or isinstance(address, bool):
        raise TypeError(f"an address of metrics is HOST:PORT, a port or a URL, not {type(address).__name__}")
    check_text("address", str(address))
    text = f"127.0.0.1:{address}" if isinstance(address, int) or address.isdigit() else address
    if "://" not in text:
        text = f"http://{text}"
    if not text.startswith(("http://", "https://")):
        raise ValueError(f"{address} is no address of metrics, such as 127.0.0.1:9464")
    # The server prints the address of its metrics as a whole.
    return text.rstrip("/").removesuffix("/metrics") + "/status"


def _asked(place: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(place, timeout=PATIENCE) as answer:
            figures = json.loads(answer.read(MOST_BYTES))
    except (OSError, urllib.error.URLError, http.client.HTTPException) as error:
        raise DriveError(f"{place} does not answer: {getattr(error, 'reason', error)}") from error
    except ValueError as error:
        raise DriveError(f"{place} gives no figures of a drive: {error}") from error
    if not isinstance(figures, dict) or figures.get("kind") != "drive":
        raise DriveError(f"{place} gives no figures of a drive")
    return figures


class _Display:
    """Where a status is shown again and again: a terminal, a notebook's output, or plain lines."""

    def __init__(self) -> None:
        self._output = Output() if _notebook.is_there() else None
        self._is_terminal = sys.stdout.isatty()

    def show(self, text: str, table: str) -> None:
        if self._output is not None:
            self._output.show(table)
            return
        # Clears the screen from its first line on.
        start = "\x1b[H\x1b[J" if self._is_terminal else ""
        print(f"{start}{text}", flush=True)


def watch(source: str | int | Watched, *, interval: float = 2.0, count: int | None = None) -> Status | None:
    """Shows figures again and again, in a terminal or a notebook, until Ctrl-C or the interrupt button; gives the last ones.

    Args:
        source: The address of a drive's metrics, as [status][toroid.status] takes it, or a cluster.
        interval: Seconds between two looks.
        count: How many looks, without end if not given.
    """
    if not isinstance(interval, Real) or not (count is None or hasattr(count, "__index__")):
        raise TypeError(f"interval is a number of seconds and count one of looks, not {interval!r} and {count!r}")
    if not interval > 0:
        raise ValueError(f"interval is {interval}, and there are more than 0 seconds between two looks")
    if not isinstance(source, str | int) and not hasattr(source, "status"):
        raise TypeError(f"what is watched is the address of a drive's metrics or a cluster, not {type(source).__name__}")
    display, seen = _Display(), time.monotonic()
    last: Status | None = None
    place = _place(source) if isinstance(source, str | int) else None
    looks = 0
    try:
        while count is None or looks < count:
            if looks:
                time.sleep(interval)
            looks += 1
            try:
                if place is None:
                    last = source.status()
                else:
                    last = ServedStatus(_asked(place), last.figures if isinstance(last, ServedStatus) else None)
                seen = time.monotonic()
            except DriveError as error:
                stale = f"no answer for {_time(time.monotonic() - seen)}: {error}"
                before = "" if last is None else f"\n\nbefore that:\n{last}"
                display.show(stale + before, _as_html(stale, ()))
                continue
            display.show(str(last), last._repr_html_())
    except KeyboardInterrupt:
        pass
    return last
