"""Twins of long calls, which a task awaits: they take what the calls take, and end with their task."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import toroid
from toroid import col
from toroid._progress import twin

OWNERS = [toroid, toroid.Client, toroid.Drive, toroid.Table, toroid.Query, toroid.GraphProgram]


@toroid.program
def successor(x: toroid.u4) -> Any:
    return x + 1


def ended_by_its_task(call: Callable[[Callable[..., object]], Coroutine[Any, Any, Any]]) -> int:
    """How often a call comes to a place, which it is given as a function, though its task is cancelled there."""
    times = 0

    async def work() -> None:
        loop = asyncio.get_running_loop()

        def place(*_: object) -> int:
            nonlocal times
            times += 1
            loop.call_soon_threadsafe(task.cancel)
            while not task.cancelling():
                time.sleep(0.001)
            # The call is told in the thread of the loop.
            time.sleep(0.05)
            return 0

        task = asyncio.ensure_future(call(place))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    return times


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.__name__)
def test_twins_take_what_their_calls_take(owner: Any) -> None:
    names = [name for name in dir(owner) if name[0] != "_" and callable(getattr(owner, f"a{name}", None))]
    assert names
    for name in names:
        call, awaitable = getattr(owner, name), getattr(owner, f"a{name}")
        assert inspect.signature(call) == inspect.signature(awaitable)
        assert awaitable.__qualname__ == f"{call.__qualname__.removesuffix(name)}a{name}"
        assert awaitable.__doc__.startswith(f"`{name}`, to await.")
    # What shows how far it is takes long.
    for name, call in inspect.getmembers(owner, callable):
        if name[0] != "_" and not inspect.isclass(call) and "progress" in inspect.signature(call).parameters:
            assert name in names or name.removeprefix("a") in names or name in ("compute", "compare"), name


def test_everything_on_a_drive_can_be_awaited(client: toroid.Client, tmp_path: Path) -> None:
    async def work() -> None:
        path = tmp_path / "drive.img"
        async with await toroid.aopen(path, create="64MiB") as drive:
            await drive.ainstall(await client.apublic_keys())
            table = await drive.aupload("t", await client.aencrypt({"x": [1, 2]}, {"x": "u4"}))
            await table.aappend(await client.aencrypt({"x": [3]}, {"x": "u4"}))
            assert list(await drive.atables()) == ["t"]
            assert len(await drive.acolumns()) == 1
            assert (await drive.ainfo())["free_bytes"] > 0
            table = await drive.atable("t")
            assert (await client.adecrypt(await table.adownload()))["x"].tolist() == [1, 2, 3]
            compiled = await successor.acompile(table, log2_failure=-40)
            assert compiled.cost == await successor.acost(table, log2_failure=-40)
            assert "cost: " in await successor.aexplain(table, log2_failure=-40)
            assert await successor.asimulate(4) == 5
            assert (await client.adecrypt(await successor.arun(table, log2_failure=-40))).tolist() == [2, 3, 4]
            query = table.agg(total=col("x").sum())
            assert (await query.acompile(-30)).cost == await query.acost(-30)
            assert "cost: " in await query.aexplain(-30)
            assert await query.asimulate({"x": [1, 2, 3]}) == await client.adecrypt(await query.arun(log2_failure=-30), max_log2_failure=-20)
            assert await drive.aclean() == []
            await drive.adelete("t")
            with pytest.raises(toroid.MissingError):
                await drive.adelete("t")
        assert drive.core.is_closed
        with pytest.raises(toroid.FileError):
            await toroid.aopen(path, create=True)
        key = tmp_path / "client.key"
        await client.asave(key, "words")
        for found in (await toroid.Client.aload(key, "words"), await toroid.Client.aloads(await client.adumps("words"), "words")):
            assert found.tag == client.tag
        assert (await toroid.Client.agenerate("tiny")).params == "tiny"

    asyncio.run(work())


def test_an_upload_whose_task_is_cancelled_leaves_nothing(client: toroid.Client) -> None:
    with toroid.open() as drive:
        wide = client.encrypt({"a": [2**20] * 100, "b": [2**20] * 100})
        assert ended_by_its_task(lambda place: drive.aupload("t", wide, progress=place)) == 1
        # Its own calls put things right, though it is told to end.
        assert drive.columns() == {}
        drive.upload("t", wide)
        ended_by_its_task(lambda place: drive.aupload("t", wide, replace=True, progress=place))
        assert drive["t"].rows == 100


def test_calls_without_progress_end_with_their_task(client: toroid.Client) -> None:
    with toroid.open() as drive:
        table = drive.upload("t", client.encrypt({"x": [1, 2]}, {"x": "u8"}))
        # Functions are called with every value, one after the other.
        assert ended_by_its_task(lambda place: table.select(y=col("x").table(place)).acompile()) == 1
        # Of what is cancelled no further command of the drive begins.
        wide = drive.upload("wide", client.encrypt({"a": [2**40], "b": [2**40]}))
        names = set(drive.columns())

        def delete(place: Callable[..., object]) -> None:
            place()
            drive.delete("wide")

        assert ended_by_its_task(lambda place: twin(delete)(place)) == 1
        assert set(drive.columns()) == names
        assert client.decrypt(wide.download())["a"].tolist() == [2**40]


def test_errors_name_the_line_of_the_call(client: toroid.Client) -> None:
    async def work(query: toroid.Query) -> None:
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        for call in (query.asimulate({"x": [99]}), asyncio.ensure_future(query.asimulate({"x": [99]}))):
            with pytest.raises(toroid.GraphError) as refused:
                await call
            assert refused.value.line == f"{__file__}:{line}"

    with toroid.open() as drive:
        table = drive.upload("t", client.encrypt({"x": [1, 2]}, {"x": "u4"}))
        asyncio.run(work(table.agg(total=col("x").sum())))
