"""Tables over a cluster of drives, with a real Ray on this machine. Where processes are killed, the job's own progress says when."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toroid
from toroid import col

pytest.importorskip("ray", reason="Ray is not installed, so tables over a cluster are not tested: pip install 'toroid[ray]'")

ROWS = 12
DATA = {"pay": np.arange(ROWS) * 5 % 64, "dept": np.arange(ROWS) % 3}
TYPES = {"pay": (0, 63), "dept": (0, 2)}
LOOSE = {"log2_failure": -30.0}  # sets for tests are noisier than those that protect something


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A cluster of this machine, which admits those with the token of conftest.py."""
    import ray

    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def cluster(ray: Any, client: toroid.Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from toroid.ray import Cluster

    folder = tmp_path_factory.mktemp("drives")
    images = [folder / f"{name}.img" for name in "abc"]
    for image in images:
        toroid.open(image, create="64MiB").close()
    # A busy machine may take longer than usual to start an actor again.
    with Cluster(images, deadline=300) as cluster:
        assert cluster.install(client.public_keys()) == [str(image) for image in images]
        # They have them now.
        assert cluster.install(client.public_keys()) == []
        yield cluster


@pytest.fixture(scope="module")
def staff(cluster: Any, client: toroid.Client) -> Any:
    return cluster.upload("staff", client.encrypt(DATA, TYPES), shards=3, replicas=2)


def question(table: Any) -> toroid.Query:
    return table.where(col("pay") > 20).group_by("dept").agg(n=toroid.count(), pay=col("pay").sum())


def check(client: toroid.Client, query: toroid.Query, answer: Any) -> None:
    found, expected = client.decrypt(answer, max_log2_failure=-20), query.simulate(DATA)
    assert {name: np.asarray(column).tolist() for name, column in found.items()} == {name: np.asarray(column).tolist() for name, column in expected.items()}


def after(units: int, then: Callable[[], object]) -> Callable[[str, int, int], None]:
    """Progress that does something once so many units are done."""
    calls: list[int] = []

    def report(_stage: str, done: int, _total: int) -> None:
        calls.append(done)
        if len(calls) == units:
            then()

    return report


def test_importing_the_package_does_not_import_ray() -> None:
    code = "import sys, toroid; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rows_are_spread_with_replicas(cluster: Any, staff: Any) -> None:
    a, b, c = cluster.locations
    assert staff.shards == {(0, 4): (a, b), (4, 8): (b, c), (8, 12): (a, c)}
    assert cluster["staff"].shards == staff.shards
    assert (staff.rows, staff.params, list(staff.columns)) == (ROWS, "tiny-wopbs", ["pay", "dept"])


def test_questions_and_programs_run_unchanged(client: toroid.Client, staff: Any) -> None:
    @toroid.program
    def more(pay: toroid.Range(0, 63)) -> Any:  # type: ignore[valid-type]
        return toroid.minimum(pay, 40)

    query = question(staff)
    check(client, query, query.run(**LOOSE))
    query = staff.where(col("dept") == 1).select("pay")
    check(client, query, query.run(**LOOSE))
    query = staff.options(unit_rows=3).histogram("pay", [0, 20, 40, 64])
    check(client, query, query.run(**LOOSE))
    result = more.run(staff.options(unit_rows=3), rows=(2, 10), **LOOSE)
    assert client.decrypt(result, max_log2_failure=-20).tolist() == np.minimum(DATA["pay"], 40)[2:10].tolist()


def test_calls_of_a_cluster_can_be_awaited(cluster: Any, client: toroid.Client) -> None:
    async def work() -> tuple[Any, Any]:
        table = await cluster.aupload("awaited", client.encrypt(DATA, TYPES), shards=3)
        await table.aappend(client.encrypt(DATA, TYPES))
        answer = await table.where(col("pay") > 20).agg(n=toroid.count()).arun(**LOOSE)
        rows = await (await cluster.atable("awaited")).adownload()
        await cluster.adelete("awaited")
        return client.decrypt(answer, max_log2_failure=-20), client.decrypt(rows)

    answer, rows = asyncio.run(work())
    assert answer == {"n": 2 * np.count_nonzero(DATA["pay"] > 20)}
    assert rows["pay"].tolist() == 2 * DATA["pay"].tolist()
    assert "awaited" not in cluster.tables()


def test_a_task_that_is_cancelled_ends_its_question(cluster: Any, client: toroid.Client, staff: Any) -> None:
    query = question(staff.options(unit_rows=1))

    async def work() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(query.arun(**LOOSE, progress=lambda *_: loop.call_soon_threadsafe(task.cancel)))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    check(client, query, query.run(**LOOSE))


def test_a_unit_that_two_drives_compute_counts_once(client: toroid.Client, staff: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toroid.ray._run import Run

    chosen = Run._next
    twice: list[Any] = []

    def eager(run: Run, worker: str) -> Any:
        unit = chosen(run, worker)
        if unit is None:
            unit = next((unit for unit, _, _ in run._calls.values() if run._may_take(worker, unit)), None)
            twice.extend([] if unit is None else [unit])
        return unit

    monkeypatch.setattr(Run, "_next", eager)
    monkeypatch.setattr(Run, "_is_needed", lambda run: bool(run._calls or any(run._waiting.values())))
    job = tmp_path / "twice.job"
    query = question(staff.options(job=job, unit_rows=1))
    check(client, query, query.run(**LOOSE))
    rows = [json.loads(line)["rows"] for line in job.read_bytes().splitlines()[1:]]
    assert any(len(unit.done) == 2 for unit in twice)
    assert sorted(rows) == [[first, first + 1] for first in range(ROWS)]


def test_questions_that_compare_rows_run_unchanged(cluster: Any, client: toroid.Client, staff: Any) -> None:
    before = {location: set(cluster._ask(location, "columns")) for location in cluster.locations}
    for query in (
        staff.group_by("dept").agg(least=col("pay").min(), most=col("pay").max(), total=col("pay").sum()),
        staff.where(col("pay") > 20).agg(least=(col("pay") * 2).min()),
        staff.top_k(3, "pay"),
        staff.where(col("dept") == 1).select("pay", "dept").sort("pay", descending=True),
    ):
        check(client, query, query.run(**LOOSE))
    # They keep nothing on drives.
    assert {location: set(cluster._ask(location, "columns")) for location in cluster.locations} == before
    with pytest.raises(ValueError, match="leave job out"):
        staff.options(job="never.job").top_k(1, "pay").run(**LOOSE)
    with pytest.raises(ValueError, match="leave verify out"):
        staff.options(verify=1).top_k(1, "pay").run(**LOOSE)
    assert not Path("never.job").exists()


def test_comparisons_go_on_without_what_is_killed(ray: Any, cluster: Any, client: toroid.Client, staff: Any) -> None:
    node = cluster.add_node()
    query = staff.options(unit_rows=1).sort("pay")
    before = cluster._figures.tally(node).units

    def kill() -> None:
        for name in (cluster.locations[0], node):
            os.kill(ray.get(cluster._actors[name].pid.remote()), signal.SIGKILL)

    try:
        check(client, query, query.run(progress=after(2, kill), **LOOSE))
        assert cluster._figures.tally(node).units > before
        job = cluster.status().jobs[-1]
        assert (job.table, job.state, job.rows_done) == ("staff", "done", job.rows)
    finally:
        cluster.remove_node(node)


def test_comparisons_say_why_no_drive_makes_them(cluster: Any, staff: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = type(cluster)._submit
    seen: list[str] = []

    def refused(self: Any, location: str, action: str, *arguments: Any) -> Any:
        if action != "compare":
            return submit(self, location, action, *arguments)
        seen.append(location)
        # A program that the drive cannot read.
        return submit(self, location, action, *arguments[:3], arguments[3], {"nothing": "nothing"})

    monkeypatch.setattr(type(cluster), "_submit", refused)
    with pytest.raises(toroid.DriveError, match="no drive could compare rows of table staff"):
        staff.options(unit_rows=100).top_k(1, "pay").run(**LOOSE)
    assert set(seen) == set(cluster.locations)
    assert max(Counter(seen).values()) < 20


def test_no_object_of_ray_has_the_client_key(
    ray: Any, cluster: Any, client: toroid.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.save(tmp_path / "key", unencrypted=True)
    key = (tmp_path / "key").read_bytes()
    # 64 bytes say what it is; behind them are the bits of the key, and a checksum.
    secrets = [key[place : place + 8] for place in range(64, len(key) - 12)]
    sent: list[bytes] = []
    submit, put = type(cluster)._submit, ray.put

    def seen(self: Any, *arguments: Any) -> Any:
        sent.append(ray.cloudpickle.dumps(arguments))
        return submit(self, *arguments)

    def kept(value: Any) -> Any:
        sent.append(ray.cloudpickle.dumps(value))
        return put(value)

    monkeypatch.setattr(type(cluster), "_submit", seen)
    monkeypatch.setattr(ray, "put", kept)
    cluster.install(client.public_keys())
    table = cluster.upload("secret", client.encrypt(DATA, TYPES))
    question(table).run(**LOOSE)
    cluster.delete("secret")
    assert len(sent) > 10 and len(secrets) > 10
    assert not [secret for secret in secrets if any(secret in message for message in sent)]
    with pytest.raises(TypeError, match="is not pickled"):
        put(client)


def test_options_that_need_a_client_are_refused(ray: Any) -> None:
    from toroid.ray import Cluster

    with pytest.raises(ValueError, match="ledger is no option"):
        Cluster(["a.img"], ledger="ledger")
    with pytest.raises(TypeError, match="a list of locations"):
        Cluster("a.img")
    with pytest.raises(toroid.OptionError, match="no option bogus"):
        Cluster(["a.img"], bogus=1)
    with pytest.raises(ValueError, match="each of them once"):
        Cluster(["a.img", "a.img"])
    with pytest.raises(TypeError, match="a list of locations, not int"):
        Cluster(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="location is a path or an address, not int"):
        Cluster([5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"placement has .*b\.img, which is no location"):
        Cluster(["a.img"], placement={"b.img": {}})
    for options in ({"patience": "x"}, {"patience": -1}, {"deadline": float("nan")}, {"deadline": None}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} is .*; expected seconds"):
            Cluster(["a.img"], **options)


def test_tables_that_are_wrong_are_refused(cluster: Any, client: toroid.Client, staff: Any) -> None:
    rows = client.encrypt(DATA, TYPES)
    with pytest.raises(toroid.ExistsError, match="has a table staff already"):
        cluster.upload("staff", rows)
    with pytest.raises(ValueError, match="from 1 to 3 replicas"):
        cluster.upload("other", rows, replicas=4)
    for what in ("shards", "replicas"):
        with pytest.raises(TypeError, match=f"{what} is '2'; expected an integer"):
            cluster.upload("other", rows, **{what: "2"})
        with pytest.raises(TypeError, match=f"{what} is 1.5; expected an integer"):
            staff.append(rows, **{what: 1.5})
    with pytest.raises(toroid.OptionError, match="key_id is -1"):
        cluster.upload("other", rows, key_id=-1)
    with pytest.raises(toroid.MissingError, match="no table other"):
        cluster.table("other")
    with pytest.raises(toroid.RowsError, match="and not 0..13"):
        staff.compute(question(staff).compile(**LOOSE), {"c0": "dept", "c1": "pay"}, (0, 13), None)


def test_killed_actors_are_started_again(ray: Any, cluster: Any, client: toroid.Client, staff: Any) -> None:
    query = question(staff.options(unit_rows=1))

    def kill() -> None:
        for location in cluster.locations[:2]:
            os.kill(ray.get(cluster._actors[location].pid.remote()), signal.SIGKILL)

    check(client, query, query.run(progress=after(2, kill), **LOOSE))


def test_units_of_a_drive_that_stands_still_go_to_others(ray: Any, cluster: Any, client: toroid.Client, staff: Any) -> None:
    query = question(staff.options(unit_rows=1))
    process = ray.get(cluster._actors[cluster.locations[0]].pid.remote())
    try:
        answer = query.run(progress=after(2, lambda: os.kill(process, signal.SIGSTOP)), **LOOSE)
    finally:
        os.kill(process, signal.SIGCONT)
    check(client, query, answer)


def test_a_job_goes_on_where_its_process_was_killed(ray: Any, cluster: Any, client: toroid.Client, tmp_path: Path, staff: Any) -> None:
    from toroid.ray import resume

    # The other process has drives of its own, as an image has one session at a time.
    image, job = tmp_path / "d.img", tmp_path / "job"
    with toroid.open(image, create="64MiB") as drive:
        drive.install(client.public_keys())
    (tmp_path / "rows").write_bytes(ray.cloudpickle.dumps(client.encrypt(DATA, TYPES)))
    code = f"""
import os, pickle, signal, sys
import ray, toroid
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_ray import LOOSE, after, question
from toroid.ray import Cluster
ray.init(address={ray.get_runtime_context().gcs_address!r}, log_to_driver=False)
rows = pickle.loads(open({str(tmp_path / "rows")!r}, "rb").read())
table = Cluster([{str(image)!r}]).upload("staff", rows)
kill = after(3, lambda: os.kill(os.getpid(), signal.SIGKILL))
question(table.options(unit_rows=2, job={str(job)!r})).run(progress=kill, **LOOSE)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    lines = job.read_bytes().splitlines()
    assert len(lines) == 4 and job.stat().st_mode & 0o777 == 0o600
    # What the process was about to write is left out.
    with job.open("ab") as file:
        file.write(b'{"rows": [6, 8], "dri')
    seen: list[int] = []
    answer = resume(job, progress=lambda _stage, done, _total: seen.append(done), patience=60)
    assert seen == [8, 10, 12]
    check(client, question(staff), answer)
    # A job that is done has nothing more to compute.
    records = [json.loads(line)["rows"] for line in job.read_bytes().splitlines()[1:]]
    assert sorted(records) == [[first, first + 2] for first in range(0, ROWS, 2)]
    with pytest.raises(toroid.ExistsError, match="file of another job"):
        question(staff.options(job=job)).run(**LOOSE)
    with pytest.raises(toroid.OptionError, match="patience, which a cluster"):
        resume(job, cluster, patience=60)


def test_a_job_whose_file_cannot_be_written_says_so_and_goes_on(cluster: Any, client: toroid.Client, tmp_path: Path, staff: Any) -> None:
    job = tmp_path / "job"
    query = question(staff.options(job=job, unit_rows=2))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(*_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job.stat().st_size + 100, before[1]))

    try:
        with pytest.raises(toroid.FileError, match=re.escape(f"{job}: File too large")):
            query.run(progress=limit, **LOOSE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    done = job.read_bytes().count(b"\n") - 1
    assert 0 < done < ROWS // 2
    check(client, query, query.run(**LOOSE))
    assert job.read_bytes().count(b"\n") - 1 == ROWS // 2


def test_files_that_are_no_jobs_are_refused_and_stay(cluster: Any, staff: Any, tmp_path: Path) -> None:
    from toroid.ray import resume

    with pytest.raises(toroid.FileError, match="No such file"):
        resume(tmp_path / "job")
    header = {"toroid job": 1}
    for text in ("something\n", "no newline", "", "a\nlast line", "5\n", '"toroid job"\n', "null\n", json.dumps(header) + "\n"):
        file = tmp_path / "job"
        file.write_text(text)
        with pytest.raises(toroid.DamagedError, match="no file of a job"):
            resume(file, cluster)
        if text:
            with pytest.raises(toroid.DamagedError, match="no file of a job"):
                question(staff.options(job=file)).run(**LOOSE)
        assert file.read_text() == text


def test_damaged_jobs_are_refused_and_cut_ones_go_on(cluster: Any, client: toroid.Client, tmp_path: Path, staff: Any) -> None:
    from toroid.ray import resume

    file = tmp_path / "job"
    query = question(staff.options(job=file, unit_rows=6))
    check(client, query, query.run(**LOOSE))
    lines = file.read_bytes().splitlines(keepends=True)
    header, record = json.loads(lines[0]), json.loads(lines[1])
    wrong = [
        [{**header, "toroid job": 99}],
        [{name: value for name, value in header.items() if name != "table"}],
        [{**header, "compiled": "{}"}],
        [{**header, "compiled": "text"}],
        [{**header, "finish": {}}],
        [header, [1]],
        [header, {**record, "result": 5}],
        [header, {**record, "rows": [0]}],
        [header, {**record, "rows": [100, 102]}],
        [header, record, {**record, "rows": [record["rows"][0], record["rows"][1] - 1]}],
    ]
    for values in wrong:
        file.write_text("".join(json.dumps(value) + "\n" for value in values))
        before = file.read_bytes()
        with pytest.raises(toroid.DamagedError, match="no file of a job"):
            resume(file, cluster)
        assert file.read_bytes() == before
    # A process may end in the first line, or in a later one.
    for kept in (lines[0][:40], lines[0] + lines[1] + lines[2][:40], b"".join(lines) + lines[1]):
        file.write_bytes(kept)
        check(client, query, query.run(**LOOSE))
    # Who replaces the table has another one.
    table = cluster.upload("again", client.encrypt(DATA, TYPES))
    question(table.options(job=tmp_path / "other")).run(**LOOSE)
    table = cluster.upload("again", client.encrypt(DATA, TYPES), replace=True)
    with pytest.raises(toroid.MissingError, match="table again was uploaded again since"):
        resume(tmp_path / "other", cluster)
    cluster.delete("again")


def test_drives_that_refuse_say_why(cluster: Any, client: toroid.Client) -> None:
    from toroid.ray import MissingRows

    stranger = toroid.Client.generate("tiny-wopbs")
    table = cluster.upload("strange", stranger.encrypt(DATA, TYPES))
    with pytest.raises(MissingRows, match=r"rows 0\.\.12 of table strange") as error:
        question(table).run(**LOOSE)
    assert error.value.rows == ((0, 12),)
    assert set(error.value.reasons) == set(cluster.locations)
    assert all("key" in reason for reason in error.value.reasons.values())
    assert isinstance(error.value.__cause__, toroid.Error)
    cluster.delete("strange")


def test_a_drive_that_gives_other_results_is_named(cluster: Any, client: toroid.Client) -> None:
    table = cluster.upload("checked", client.encrypt(DATA, TYPES), shards=1, replicas=3).options(verify=0.5, unit_rows=2)
    query = question(table)
    answer = query.run(**LOOSE)
    check(client, query, answer)
    # What is not compared may have been added up.
    rows = [(len(by_drive), size) for size, by_drive in answer.encrypted.parts]
    assert [sum(size for copies, size in rows if copies == wanted) for wanted in (1, 3)] == [6, 6]
    # The second drive computes on other rows than were put there.
    cheat = cluster.locations[1]
    other = client.encrypt({**DATA, "pay": (DATA["pay"] + 1) % 64}, TYPES)
    cluster._got(cheat, cluster._submit(cheat, "upload", table.cells[0].held[0][1].name, other, 0))
    with pytest.raises(toroid.UntrustedError, match=re.escape(f"{cheat} is wrong")) as error:
        client.decrypt(question(table.options(verify=1)).run(**LOOSE), max_log2_failure=-20)
    assert error.value.drives == (cheat,)
    with pytest.raises(ValueError, match="verify needs a second drive"):
        cluster.upload("checked", client.encrypt(DATA, TYPES), replace=True).options(verify=0.5)
    cluster.delete("checked")


def test_rows_that_were_to_be_compared_are(cluster: Any, client: toroid.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from toroid.ray import resume

    def copies(answer: Any) -> list[int]:
        return [len(by_drive) for _, by_drive in answer.encrypted.parts]

    def stop() -> None:
        raise KeyboardInterrupt

    job = tmp_path / "job"
    table = cluster.upload("compared", client.encrypt(DATA, TYPES), shards=1, replicas=2).options(unit_rows=3, verify=1, job=job)
    query = question(table)
    with pytest.raises(KeyboardInterrupt):
        query.run(progress=after(3, stop), **LOOSE)
    # One that a process left behind without the other, and one that it only chose.
    header, choice, *records = [json.loads(line) for line in job.read_bytes().splitlines()]
    assert sorted(choice["verify"]) == [[0, 3], [3, 6], [6, 9], [9, 12]]
    kept = {tuple(record["rows"]): record for record in records}
    job.write_text("".join(json.dumps(line) + "\n" for line in (header, choice, *list(kept.values())[:2])))
    before = job.read_bytes()
    # The second drive fails, and the rows are known from one alone.
    submit, second = type(cluster)._submit, cluster.locations[1]

    def fail(self: Any, location: str, action: str, *arguments: Any) -> Any:
        return submit(self, location, *(("rows", "nothing", (0, 1), None) if (location, action) == (second, "compute") else (action, *arguments)))

    job.write_bytes(before.splitlines(keepends=True)[0])
    monkeypatch.setattr(type(cluster), "_submit", fail)
    with pytest.raises(toroid.DriveError, match=r"were to be compared, and one drive alone has computed them: 0\.\.3 \(") as error:
        query.run(**LOOSE)
    assert second in str(error.value) and "nothing" in str(error.value)
    unchecked = resume(job, cluster, verify=0)
    assert copies(unchecked) == [1, 1, 1, 1]
    check(client, query, unchecked)
    monkeypatch.undo()
    for text in (job.read_bytes(), before):
        job.write_bytes(text)
        answer = resume(job, cluster)
        assert copies(answer) == [2, 2, 2, 2]
        check(client, query, answer)
    # A drive that is away cannot compare.
    table._cells = tuple(type(cell)(cell.first, cell.end, cell.held[:1]) for cell in table.cells)
    table._silent = {second: "it is away"}
    with pytest.raises(toroid.DriveError, match=r"drives are away .*it is away.*verify=0"):
        table.options(verify=0.5)
    assert table.options(verify=np.float32(0), unit_seconds=np.int64(2))._settings.unit_seconds == 2.0
    cluster.delete("compared")


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"unit_rows": "3"}, "unit_rows is '3'"),
        ({"unit_rows": 2.5}, "unit_rows is 2.5"),
        ({"unit_rows": 0}, "at least one row"),
        ({"unit_seconds": "x"}, "unit_seconds is 'x'"),
        ({"unit_seconds": float("nan")}, "unit_seconds is nan"),
        ({"unit_seconds": float("inf")}, "unit_seconds is inf"),
        ({"verify": "x"}, "verify is 'x'"),
        ({"verify": 1.5}, "a share of the rows lies from 0 to 1"),
        ({"verify": float("nan")}, "verify is nan"),
    ],
)
def test_options_that_are_wrong_are_named(staff: Any, option: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(error)):
        staff.options(**option)


def test_keys_of_another_client_are_replaced_on_demand(cluster: Any, client: toroid.Client) -> None:
    stranger = toroid.Client.generate("tiny-wopbs")
    with pytest.raises(TypeError, match="client.public_keys()"):
        cluster.install(stranger)
    with pytest.raises(toroid.KeyMismatch):
        cluster.install(stranger.public_keys())
    assert cluster.install(stranger.public_keys(), replace=True) == list(cluster.locations)
    assert cluster.install(client.public_keys(), replace=True) == list(cluster.locations)


def test_an_upload_that_fails_leaves_the_table_of_before(cluster: Any, client: toroid.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    table = cluster.upload("kept", client.encrypt(DATA, TYPES))
    submit, last = type(cluster)._submit, cluster.locations[-1]

    def refuse(self: Any, location: str, action: str, *arguments: Any) -> Any:
        return submit(self, location, *(("rows", "nothing", (0, 1), None) if (location, action) == (last, "upload") else (action, *arguments)))

    monkeypatch.setattr(type(cluster), "_submit", refuse)
    with pytest.raises(toroid.MissingError) as error:
        cluster.upload("kept", client.encrypt(DATA, TYPES), replace=True)
    assert error.value.__notes__ == [f"on drive {last}"]
    monkeypatch.undo()
    query = question(cluster.table("kept"))
    assert cluster["kept"]._upload == table._upload
    check(client, query, query.run(**LOOSE))
    cluster.delete("kept")


def test_an_upload_that_ended_early_leaves_the_table_of_before(cluster: Any, client: toroid.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    table = cluster.upload("early", client.encrypt(DATA, TYPES))
    query = question(table)
    # A process that was killed takes nothing away.
    part = client.encrypt({"pay": [1, 2], "dept": [0, 1]}, TYPES)
    cluster._got(cluster.locations[0], cluster._submit(cluster.locations[0], "upload", f"early {'f' * 16} rows 0..2 of 12 x1", part, 0))
    assert cluster["early"].shards == table.shards
    check(client, query, question(cluster["early"]).run(**LOOSE))
    # If another drive is away, the rows may be its own.
    answers = type(cluster)._answers
    away = {cluster.locations[2]: toroid.DriveError("away")}
    monkeypatch.setattr(type(cluster), "_answers", lambda self, *arguments: {**answers(self, *arguments), **away})
    assert list(cluster["early"].shards) == [(0, 2)]
    monkeypatch.undo()
    # One that was interrupted takes its rows away, those of calls under way included.
    got = type(cluster)._got

    def interrupt(self: Any, location: str, call: Any) -> Any:
        if location == cluster.locations[1]:
            raise KeyboardInterrupt
        return got(self, location, call)

    held = cluster._shards_on_drives("early")
    monkeypatch.setattr(type(cluster), "_got", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cluster.upload("early", client.encrypt(DATA, TYPES), replace=True)
    monkeypatch.undo()
    assert cluster._shards_on_drives("early") == held
    cluster.delete("early")


def test_rows_that_fail_cost_no_others(cluster: Any, client: toroid.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from toroid.ray import MissingRows

    table = cluster.upload("faulty", client.encrypt(DATA, TYPES), shards=1).options(unit_rows=3, job=tmp_path / "job")
    submit = type(cluster)._submit

    def fail(self: Any, location: str, action: str, *arguments: Any) -> Any:
        if action == "compute" and arguments[-1][0] < 6:
            return submit(self, location, "rows", "no such table", (0, 1), None)
        return submit(self, location, action, *arguments)

    monkeypatch.setattr(type(cluster), "_submit", fail)
    with pytest.raises(MissingRows) as error:
        question(table).run(**LOOSE)
    assert error.value.rows == ((0, 6),)
    assert len((tmp_path / "job").read_bytes().splitlines()) == 3
    monkeypatch.undo()
    check(client, question(table), question(table).run(**LOOSE))
    cluster.delete("faulty")


def test_a_cluster_that_cannot_answer_says_so(cluster: Any, client: toroid.Client, staff: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from toroid.ray import Cluster

    # What is wrong with a call is no fault of the drive.
    with pytest.raises(ValueError, match="bytes too long") as error:
        cluster.upload("x" * 200, client.encrypt(DATA, TYPES))
    assert not isinstance(error.value, toroid.DriveError)
    assert "staff" in cluster and "other" not in cluster and list(cluster) == ["staff"]
    nobody = Cluster([tmp_path / "none.img"], patience=0)
    for ask in (nobody.tables, lambda: nobody["staff"], lambda: nobody.delete("staff"), lambda: list(nobody)):
        with pytest.raises(toroid.DriveError, match="no drive of the cluster answers: .*none.img"):
            ask()
    nobody.close()
    with pytest.raises(toroid.ClosedError, match="the cluster was closed"):
        nobody.tables()


def serve(image: str, address: str) -> tuple[str, subprocess.Popen[str]]:
    """The location of an image that is served, and the process."""
    program = os.environ.get("TOROID") or shutil.which("toroid")
    if program is None or not Path(program).exists():
        pytest.skip("there is no command `toroid` that serves drives; TOROID can name it")
    command = [program, "drive", "serve", "--listen", address, "--experimental-computational-programs", image]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    return next(found[0] for line in server.stdout if (found := re.search(r"nvme\+tcp://\S+", line))), server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    servers: dict[str, subprocess.Popen[str]] = {}
    try:
        for name in "ab":
            image = str(tmp_path / f"{name}.img")
            toroid.open(image, create="64MiB").close()
            location, server = serve(image, "127.0.0.1:0")
            servers[location] = server
        yield servers
    finally:
        for server in servers.values():
            server.kill()
            server.communicate()


def test_a_killed_drive_costs_only_the_rows_that_no_other_has(ray: Any, client: toroid.Client, served: Any, tmp_path: Path) -> None:
    from toroid.ray import Cluster, MissingRows, resume

    first, second = served
    with Cluster(served, patience=0) as cluster:
        cluster.install(client.public_keys())
        rows = client.encrypt(DATA, TYPES)
        single = cluster.upload("single", rows)
        query = question(cluster.upload("double", rows, replicas=2).options(unit_rows=1))
        check(client, query, query.run(progress=after(2, served[second].kill), **LOOSE))
        with pytest.raises(MissingRows, match=r"rows 6\.\.12 of table single") as error:
            question(single.options(job=tmp_path / "job")).run(**LOOSE)
        assert error.value.rows == ((6, 12),)
        assert list(error.value.reasons) == [second]
        # A table that is looked up now lacks them from the start.
        with pytest.raises(MissingRows) as error:
            question(cluster["single"]).run(**LOOSE)
        assert error.value.rows == ((6, 12),)
        assert second in error.value.reasons and first not in error.value.reasons
        # Once the drive is back, the job goes on with the rows that it has.
        image, address = served[second].args[-1], second.split("/")[2]
        served[second].communicate()
        _, served[second] = serve(image, address)
        seen: list[int] = []
        answer = resume(tmp_path / "job", cluster, progress=lambda _stage, done, _total: seen.append(done))
        assert seen == [12]
        check(client, question(single), answer)


def test_the_status_tells_what_was_done(cluster: Any, client: toroid.Client, staff: Any) -> None:
    seen: list[Any] = []
    query = question(staff.options(unit_rows=2))
    before = {drive.name: drive.units_done for drive in cluster.status().drives}
    answer = query.run(progress=lambda *_: seen.append(cluster.status()), **LOOSE)
    check(client, query, answer)
    running = [job for status in seen for job in status.jobs if job.state == "running"]
    assert running and all(job.table == "staff" and job.rows == ROWS and 0 < job.rows_done <= ROWS for job in running)
    now = cluster.status()
    assert now.jobs[-1].state == "done" and now.jobs[-1].rows_done == ROWS
    assert sum(drive.units_done - before[drive.name] for drive in now.drives) >= ROWS / 2
    assert "staff" in str(now) and now.to_json()["kind"] == "cluster"
    with cluster.board() as board, urllib.request.urlopen(f"{board.url}status", timeout=10) as reply:
        assert len(json.load(reply)["drives"]) == 3


def test_nodes_compute_rows_of_drives(cluster: Any, client: toroid.Client, staff: Any) -> None:
    node = cluster.add_node()
    try:
        with pytest.raises(toroid.ExistsError, match=f"has {node} already"):
            cluster.add_node(node)
        for _ in range(5):
            query = question(staff.options(unit_rows=1))
            check(client, query, query.run(**LOOSE))
            own = next(drive for drive in cluster.status().drives if drive.name == node)
            if own.units_done:
                break
        assert (own.role, own.failures) == ("compute", 0) and own.units_done > 0
        # Jobs go on without it.
        query = question(staff.options(unit_rows=1))
        check(client, query, query.run(progress=after(2, lambda: cluster.remove_node(node)), **LOOSE))
    finally:
        if node in cluster.nodes:
            cluster.remove_node(node)
    with pytest.raises(toroid.MissingError, match=f"no node {node}"):
        cluster.remove_node(node)


def test_neighbours_are_added_up_on_drives(cluster: Any, client: toroid.Client, staff: Any) -> None:
    def total(table: Any) -> None:
        query = table.options(unit_rows=1).where(col("pay") > 20).agg(total=col("pay").sum())
        answer = query.run(**LOOSE)
        assert [size for size, _ in answer.encrypted.parts] == [4, 4, 4]
        check(client, query, answer)

    total(staff)
    # So are those of two drives. A drive with as many rows as a sum has knows its noise.
    table = cluster.upload("odd", client.encrypt({"pay": DATA["pay"][:7]}, {"pay": (0, 63)}), shards=1)
    table.append(client.encrypt({"pay": DATA["pay"][7:]}, {"pay": (0, 63)}))
    assert list(table.shards) == [(0, 7), (7, 12)] and len(set(table.shards.values())) == 2
    total(table)
    cluster.delete("odd")


def test_rows_are_appended_and_downloaded(cluster: Any, client: toroid.Client) -> None:
    table = cluster.upload("grown", client.encrypt(DATA, TYPES), shards=2)
    more = {name: values[:5] for name, values in DATA.items()}
    table.append(client.encrypt(more, TYPES), shards=2)
    assert table.rows == cluster["grown"].rows == ROWS + 5
    whole = {name: np.concatenate([values, values[:5]]) for name, values in DATA.items()}
    found = client.decrypt(table.download())
    assert {name: column.tolist() for name, column in found.items()} == {name: column.tolist() for name, column in whole.items()}
    found = client.decrypt(table.download((ROWS - 2, ROWS + 2)))
    assert found["pay"].tolist() == whole["pay"][ROWS - 2 : ROWS + 2].tolist()
    query = table.agg(total=col("pay").sum())
    assert client.decrypt(query.run(**LOOSE), max_log2_failure=-20)["total"] == whole["pay"].sum()
    with pytest.raises(toroid.KeyMismatch, match="has the columns pay, dept"):
        table.append(client.encrypt({"pay": DATA["pay"]}, {"pay": (0, 63)}))
    with pytest.raises(toroid.KeyMismatch, match="another client key"):
        table.append(toroid.Client.generate("tiny-wopbs").encrypt(DATA, TYPES))
    assert cluster["grown"].rows == ROWS + 5
    cluster.delete("grown")


@pytest.fixture
def images(tmp_path: Path) -> list[str]:
    """New images of drives."""
    paths = [str(tmp_path / f"{name}.img") for name in "abcd"]
    for path in paths:
        toroid.open(path, create="64MiB").close()
    return paths


def held(cluster: Any, name: str) -> dict[str, list[tuple[int, int]]]:
    """The rows that drives have of a table, by their shards."""
    from toroid.ray._places import Shard

    shards = {drive: [Shard.of(stored) for stored in stored_shards] for drive, stored_shards in cluster._shards_on_drives(name).items()}
    return {drive: sorted((shard.first, shard.end) for shard in own) for drive, own in shards.items()}


def check_places(cluster: Any, name: str, copies: int) -> None:
    """Each row is on so many drives, drives have nearly as many rows each, and nothing that a move has left."""
    found = held(cluster, name)
    rows = [row for own in found.values() for first, end in own for row in range(first, end)]
    assert sorted(rows) == sorted(list(range(ROWS)) * copies)
    sizes = [sum(end - first for first, end in found.get(drive, ())) for drive in cluster.locations]
    assert max(sizes) - min(sizes) <= 1, found


def test_plans_leave_as_many_copies_as_there_were_to_be_and_drives_alike() -> None:
    from toroid.ray._moves import Plan
    from toroid.ray._places import Shard, cells_of, cut

    for seed in range(300):
        draw = random.Random(seed)
        drives = [f"drive {number}" for number in range(draw.randint(1, 6))]
        copies, rows = draw.randint(1, len(drives)), draw.choice([1, 12, 100, 1000])
        held: dict[str, list[Shard]] = {drive: [] for drive in drives}
        for first, end in cut(rows, min(rows, draw.randint(1, 7))):
            # What ended early may have left a copy too many.
            for drive in draw.sample(drives, min(len(drives), copies + draw.randint(0, 1))):
                held[drive].append(Shard("table", "0" * 16, first, end, rows, copies))
        staying = drives[:-1] if len(drives) > copies and draw.random() < 0.5 else drives
        staying = [*staying, "new"] if draw.random() < 0.5 else staying
        on = {row: set(cell.drives) for cell in cells_of(held, rows) for row in range(cell.first, cell.end)}
        for move in Plan(cells_of(held, rows), staying).moves:
            for row in range(move.first, move.end):
                assert move.source is None or move.source in on[row]
                assert move.target not in on[row]
                on[row] = (on[row] | {move.target}) - {move.source, None}
        counts = Counter(drive for drives_of_row in on.values() for drive in drives_of_row if drive in staying)
        assert all(len(of_row & set(staying)) == copies for of_row in on.values()), seed
        apart = max(counts[drive] for drive in staying) - min(counts[drive] for drive in staying)
        assert apart <= max(1, rows * copies / len(staying) / 8), seed


@pytest.mark.parametrize("copies", [1, 2])
def test_drives_join_and_leave_while_a_job_runs(ray: Any, client: toroid.Client, images: list[str], copies: int) -> None:
    from toroid.ray import Cluster

    with Cluster(images[:2]) as cluster:
        cluster.install(client.public_keys())
        table = cluster.upload("staff", client.encrypt(DATA, TYPES), replicas=copies)
        seen: list[tuple[str, int, int]] = []
        query = question(table.options(unit_rows=1))
        join = after(2, lambda: cluster.add_drive(images[2], progress=lambda *step: seen.append(step)))
        check(client, query, query.run(progress=join, **LOOSE))
        check_places(cluster, "staff", copies)
        assert seen[-1][0] == "move" and seen[-1][1] == seen[-1][2] > 0
        # The new drive has rows, and computes them.
        assert cluster.locations == tuple(images[:3]) and any(images[2] in drives for drives in table.shards.values())
        done = {drive.name: drive.units_done for drive in cluster.status().drives}
        check(client, query, query.run(**LOOSE))
        if copies == 1:
            now = {drive.name: drive.units_done for drive in cluster.status().drives}
            assert now[images[2]] - done[images[2]] >= ROWS // 3
        leave = after(2, lambda: cluster.remove_drive(images[0]))
        check(client, query, query.run(progress=leave, **LOOSE))
        assert cluster.locations == tuple(images[1:3])
        check_places(cluster, "staff", copies)
        found = client.decrypt(table.download())
        assert {name: column.tolist() for name, column in found.items()} == {name: column.tolist() for name, column in DATA.items()}
    # What has left has nothing of the table.
    with toroid.open(images[0]) as drive:
        assert list(drive) == []


def test_drives_that_cannot_join_or_leave_say_why(ray: Any, client: toroid.Client, images: list[str]) -> None:
    from toroid.ray import Cluster, MissingRows

    with Cluster(images[:2], patience=0) as cluster:
        cluster.install(client.public_keys())
        cluster.upload("staff", client.encrypt(DATA, TYPES), replicas=2)
        for location, error, text in (
            (images[0], toroid.ExistsError, "has drive .*a.img already"),
            (images[2] + ".none", toroid.DriveError, "No such file"),
        ):
            with pytest.raises(error, match=text):
                cluster.add_drive(location)
        with pytest.raises(toroid.MissingError, match="has no drive .*c.img; it has .*a.img, .*b.img"):
            cluster.remove_drive(images[2])
        with pytest.raises(ValueError, match="rows are to be on 2 drives, and 1 would be left"):
            cluster.remove_drive(images[1])
        assert cluster.locations == tuple(images[:2])
        check_places(cluster, "staff", 2)
        cluster.delete("staff")
        cluster.upload("single", client.encrypt(DATA, TYPES))
        # Rows of a drive that is gone are nowhere else.
        cluster._stop(images[1])
        cluster._start(images[1], images[1] + ".gone", {})
        with pytest.raises(toroid.DriveError, match="rows are moved when all drives answer"):
            cluster.rebalance()
        with pytest.raises(MissingRows, match=r"no drive that answers has the rows 6\.\.12 of table single") as error:
            cluster.remove_drive(images[1])
        assert error.value.rows == ((6, 12),) and images[1] in cluster.locations
    with Cluster(images[:1]) as cluster:
        with pytest.raises(ValueError, match="at least one drive"):
            cluster.remove_drive(images[0])
        # This object has no keys to give to a new drive.
        with pytest.raises(toroid.KeyMismatch, match="needs the public keys of table single"):
            cluster.add_drive(images[2])


def test_copies_of_a_drive_that_is_gone_are_made_again(ray: Any, client: toroid.Client, images: list[str]) -> None:
    from toroid.ray import Cluster

    with Cluster(images[:3], patience=0) as cluster:
        cluster.install(client.public_keys())
        table = cluster.upload("staff", client.encrypt(DATA, TYPES), replicas=2)
        cluster._stop(images[1])
        cluster._start(images[1], images[1] + ".gone", {})
        cluster.remove_drive(images[1])
        check_places(cluster, "staff", 2)
        check(client, question(table), question(table).run(**LOOSE))


def test_moves_that_ended_early_go_on(ray: Any, client: toroid.Client, images: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from toroid.ray import Cluster

    rows = client.encrypt(DATA, TYPES)
    with Cluster(images[:3]) as cluster:
        cluster.install(client.public_keys())
        submit = type(cluster)._submit

        def ended(limit: int) -> bool:
            """Whether moves end with the call of this number, as they would with the process."""
            calls: list[str] = []

            def count(self: Any, location: str, action: str, *arguments: Any) -> Any:
                if action.removeprefix("kept_") in ("rows", "receive", "keep", "discard"):
                    calls.append(action)
                    if len(calls) > limit:
                        raise KeyboardInterrupt
                return submit(self, location, action, *arguments)

            monkeypatch.setattr(type(cluster), "_submit", count)
            try:
                cluster.rebalance()
            except KeyboardInterrupt:
                return True
            finally:
                monkeypatch.undo()
            return False

        # One drive has everything, so that rows move to the others.
        for limit in itertools.count():
            table = cluster.upload("staff", rows, shards=1, replace=True)
            has_ended = ended(limit)
            # Another process knows what is on the drives, and no more.
            cluster._cells.clear()
            found = client.decrypt(cluster["staff"].download())
            assert found["pay"].tolist() == DATA["pay"].tolist(), limit
            cluster.rebalance()
            check_places(cluster, "staff", 1)
            if not has_ended:
                break
        assert limit > 5
        check(client, question(table), question(table).run(**LOOSE))


def test_a_cluster_goes_on_with_moves_of_a_killed_process(ray: Any, client: toroid.Client, images: list[str], tmp_path: Path) -> None:
    from toroid.ray import Cluster

    (tmp_path / "rows").write_bytes(ray.cloudpickle.dumps(client.encrypt(DATA, TYPES)))
    (tmp_path / "keys").write_bytes(ray.cloudpickle.dumps(client.public_keys().to_bytes()))
    code = f"""
import os, pickle, signal
import ray, toroid
from toroid.ray import Cluster
ray.init(address={ray.get_runtime_context().gcs_address!r}, log_to_driver=False)
cluster = Cluster({images[:2]!r})
cluster.install(toroid.PublicKeys.from_bytes(pickle.load(open({str(tmp_path / "keys")!r}, "rb"))))
cluster.upload("staff", pickle.load(open({str(tmp_path / "rows")!r}, "rb")), replicas=2)
cluster.add_drive({images[2]!r}, progress=lambda *step: os.kill(os.getpid(), signal.SIGKILL))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    # The actors of the process end with it, and leave the images.
    with Cluster(images[:3], patience=60) as cluster:
        cluster.install(client.public_keys())
        table = cluster["staff"]
        check(client, question(table), question(table).run(**LOOSE))
        # An actor that is killed in a move begins its call again.
        killed: list[int] = []

        def kill(*_: Any) -> None:
            if not killed:
                killed.append(ray.get(cluster._actors[images[2]].pid.remote()))
                os.kill(killed[0], signal.SIGKILL)

        cluster.rebalance(progress=kill)
        check_places(cluster, "staff", 2)
        check(client, question(table), question(table).run(**LOOSE))


def test_rows_go_to_a_drive_that_has_room(ray: Any, client: toroid.Client, images: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from toroid.ray import Cluster
    from toroid.ray._keeper import Keeper

    class Narrow(Keeper):
        """A drive is full where there is such a file."""

        def _check_room(self) -> None:
            if Path(f"{self._location}.full").exists():
                raise toroid.FullError("the drive is full")

        def _upload(self, drive: Any, *arguments: Any) -> None:  # type: ignore[override]
            self._check_room()
            Keeper._upload(drive, *arguments)

        def _receive(self, drive: Any, *arguments: Any) -> None:  # type: ignore[override]
            self._check_room()
            Keeper._receive(drive, *arguments)

        def _keep(self, drive: Any, *arguments: Any) -> None:  # type: ignore[override]
            raise toroid.FullError("the drive has no room for both")

    monkeypatch.setattr(Cluster, "_keeper", Narrow)
    Path(f"{images[1]}.full").touch()
    with Cluster(images[:3]) as cluster:
        cluster.install(client.public_keys())
        # The second drive takes nothing, and its shards go to others.
        table = cluster.upload("staff", client.encrypt(DATA, TYPES), shards=3, replicas=2)
        assert set(table.shards.values()) == {(images[0], images[2])}
        with pytest.raises(toroid.FullError) as error:
            cluster.upload("more", client.encrypt(DATA, TYPES), replicas=3)
        assert "full" in str(error.value) and "more" not in cluster
        # No drive has room to part with some rows only, so that shards move whole.
        cluster.add_drive(images[3])
        sizes = {drive: sum(end - first for first, end in shards) for drive, shards in held(cluster, "staff").items()}
        assert sum(sizes.values()) == 2 * ROWS and images[1] not in sizes and sizes[images[3]] > 0
        check(client, question(table), question(table).run(**LOOSE))
        for image in images:
            Path(f"{image}.full").touch()
        with pytest.raises(toroid.FullError, match="no drive of the cluster has room for the rows"):
            cluster.remove_drive(images[3])
        assert images[3] in cluster.locations


def test_a_drive_that_leaves_takes_no_rows(ray: Any, client: toroid.Client, images: list[str]) -> None:
    from toroid.ray import Cluster

    rows = client.encrypt(DATA, TYPES)
    with Cluster(images[:3]) as cluster:
        cluster.install(client.public_keys())
        first, _ = (cluster.upload(name, rows) for name in ("first", "second"))
        seen: list[str] = []

        def grow(*_: Any) -> None:
            # The first table has moved when the rows of the second one do.
            if "late" not in cluster:
                cluster.upload("late", rows)
            if images[2] not in held(cluster, "first") and not seen:
                seen.append("appended")
                first.append(rows, shards=2)
                with pytest.raises(ValueError, match="from 1 to 2 replicas"):
                    first.append(rows, replicas=3)

        cluster.remove_drive(images[2], progress=grow)
        assert seen and cluster.locations == tuple(images[:2])
        for name, count in (("first", 2), ("second", 1), ("late", 1)):
            found = client.decrypt(cluster[name].download())
            assert found["pay"].tolist() == DATA["pay"].tolist() * count, name
    with toroid.open(images[2]) as drive:
        assert list(drive) == []


def test_shards_are_deleted_once_however_often_a_drive_is_asked(
    ray: Any, client: toroid.Client, images: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from toroid.ray import Cluster
    from toroid.ray._keeper import Keeper

    class Cut(Keeper):
        """A drive whose connection ends before it has told that something is deleted."""

        def call(self, action: str, *arguments: Any) -> Any:
            answer = super().call(action, *arguments)
            return super().call(action, *arguments) if action in ("delete", "discard") else answer

    monkeypatch.setattr(Cluster, "_keeper", Cut)
    with Cluster(images[:2]) as cluster:
        cluster.install(client.public_keys())
        rows = client.encrypt(DATA, TYPES)
        cluster.upload("staff", rows)
        cluster.upload("staff", rows, replace=True)
        cluster.delete("staff")
        assert list(cluster) == []


@pytest.mark.parametrize("moves", [False, True])
def test_a_drive_that_fails_once_compares_again_where_it_has_the_rows(
    ray: Any, client: toroid.Client, images: list[str], monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    from toroid.ray import Cluster

    with Cluster(images[:2]) as cluster:
        cluster.install(client.public_keys())
        table = cluster.upload("staff", client.encrypt(DATA, TYPES), shards=1, replicas=2).options(unit_rows=ROWS, verify=1)
        submit, wait = type(cluster)._submit, type(cluster)._wait
        calls: list[Any] = []
        done: list[int] = []

        def compute(self: Any, location: str, action: str, *arguments: Any) -> Any:
            if action != "compute" or location != images[1]:
                return submit(self, location, action, *arguments)
            fails = not calls
            calls.append(submit(self, location, "rows", "nothing", (0, 1), None) if fails else submit(self, location, action, *arguments))
            assert len(calls) < 5, "a drive is asked again and again"
            return calls[-1]

        def late(self: Any, waiting: Any) -> Any:
            # The second drive answers when the first one has, and rows have moved.
            return wait(self, [call for call in waiting if done or call not in calls])

        def report(*_: Any) -> None:
            done.append(1)
            if moves:
                cluster.add_drive(images[2])

        monkeypatch.setattr(type(cluster), "_submit", compute)
        monkeypatch.setattr(type(cluster), "_wait", late)
        query = table.agg(total=col("pay").sum())
        if not moves:
            answer = query.run(progress=report, **LOOSE)
            assert [len(by_drive) for _, by_drive in answer.encrypted.parts] == [2]
            check(client, query, answer)
            return
        # Each drive then has two thirds of the rows, and none has all of them.
        with pytest.raises(toroid.DriveError, match="were to be compared, and one drive alone has computed them"):
            query.run(progress=report, **LOOSE)
        check_places(cluster, "staff", 2)


@pytest.mark.parametrize(
    "rows", ["0..0 of 0 x1", "5..5 of 12 x1", "9..3 of 12 x1", "0..13 of 12 x1", "0..12 of 12 x0", f"0..{'9' * 5000} of {'9' * 5000} x1", "0..٣ of ٣ x1"]
)
def test_what_names_no_rows_is_no_shard(rows: str) -> None:
    from toroid.ray._places import Shard

    assert Shard.of(f"staff {'0' * 16} rows 0..12 of 12 x1") is not None
    assert Shard.of(f"staff {'0' * 16} rows {rows}") is None


@pytest.mark.parametrize("what", ["actor", "drive"])
def test_rows_of_a_drive_that_stands_still_go_to_others(ray: Any, client: toroid.Client, served: Any, what: str) -> None:
    from toroid.ray import Cluster, MissingRows

    _, second = served
    with Cluster(served, patience=0, deadline=4) as cluster:
        cluster.install(client.public_keys())
        rows = client.encrypt(DATA, TYPES)
        double = question(cluster.upload("double", rows, replicas=2).options(unit_rows=6))
        single = question(cluster.upload("single", rows))
        process = served[second].pid if what == "drive" else ray.get(cluster._actors[second].pid.remote())
        os.kill(process, signal.SIGSTOP)
        try:
            # No unit has been computed before, so that nobody knows how long one takes.
            check(client, double, double.run(**LOOSE))
            # The connection to a drive that stands still may end meanwhile.
            text = r".*stands still" if what == "actor" else ""
            with pytest.raises(MissingRows, match=rf"rows 6\.\.12 of table single{text}") as error:
                single.run(**LOOSE)
            assert error.value.rows == ((6, 12),)
            if what == "actor":
                assert {drive.name: drive.state for drive in cluster.status().drives}[second] == "silent"
                assert "stands still" in str(cluster.info()[second])
        finally:
            os.kill(process, signal.SIGCONT)
        check(client, single, single.run(**LOOSE))


def test_a_cluster_without_a_token_is_refused() -> None:
    code = """
import os
os.environ["RAY_AUTH_MODE"] = "disabled"
import ray
from toroid.ray import Cluster
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
try:
    Cluster(["a.img"])
except Exception as error:
    print(type(error).__name__, error)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "OptionError this Ray cluster has no token" in ended.stdout, ended.stderr
