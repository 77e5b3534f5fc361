"""Jobs whose process has ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from toroid._errors import MissingError, OptionError
from toroid._program import Compiled, Result
from toroid._progress import Progress, twin
from toroid._query import Answer, Finish
from toroid.ray._cluster import Cluster
from toroid.ray._job import Job


def resume(
    job: str | os.PathLike[str], cluster: Cluster | None = None, *, progress: Progress = None, verify: float | None = None, **options: Any
) -> Answer | Result:
    """Goes on with the job of a file where its process ended, and gives what the call would have given.

    Args:
        job: The file that `ShardedTable.options` named.
        cluster: The drives; if not given, those of the job, with options as [Cluster][toroid.ray.Cluster] has them.
        progress: True for a line that shows how far it is, or a callable of the stage, the rows done and those in total.
        verify: The share of the rows that are still to do which drives compute for `client.decrypt` to compare, in place of that of the job. With 0
            rows that the job chose before are not compared either.

    Raises:
        OptionError: There are options beside a cluster.
        MissingRows: No drive could compute some rows.
        DriveError: Rows that were to be compared could not be.
        MissingError: The table was deleted, or uploaded again, since.
    """
    if cluster is not None and options:
        raise OptionError(f"there is {', '.join(sorted(options))}, which a cluster has from its start, beside a cluster")
    with Job.open(Path(job), None) as found:
        header = found.header
    own = cluster or Cluster(header["locations"], **options)
    try:
        table = own.table(header["table"])
        if table._upload != header["upload"]:
            raise MissingError(f"table {table.name} was uploaded again since, and {os.fspath(job)} is a job on the rows of before")
        compiled = Compiled(header["compiled"])
        ways = {name: header[name] for name in ("unit_seconds", "unit_rows", "verify")}
        if verify is not None:
            ways["verify"] = verify
        finish = None if header["finish"] is None else Finish.of(header["finish"])
        rows = (header["rows"][0], header["rows"][1])
        encrypted = table.options(job=job, **ways).compute(compiled, header["columns"], rows, progress, finish)
    finally:
        if cluster is None:
            own.close()
    count = rows[1] - rows[0]
    return Result(compiled, encrypted, count) if finish is None else Answer(compiled, encrypted, count, finish)


aresume = twin(resume)
