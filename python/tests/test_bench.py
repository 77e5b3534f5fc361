"""What the benchmark beside Concrete judges; nothing is measured here."""

from __future__ import annotations

import argparse
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "bench"


def loaded(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(FOLDER / name))
    for beside in ("tasks", "ours", "simulated", "results"):
        monkeypatch.delitem(sys.modules, beside, raising=False)
    # The program has no ending, and keeps no bytecode beside it.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader(f"bench_{name}_run", str(FOLDER / name / "run"))
    module = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return loaded(monkeypatch, "python")


def test_clusters_are_judged_by_speed_and_efficiency(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'toroid[ray]'")
    bench = loaded(monkeypatch, "cluster")
    drives = {name: {"seconds": 1.0, "start_s": 1.0, "ray_start_s": 1.0} for name in ("ray_1", "ray_2", "threads_1", "threads_2")}
    real = {"rows": 200, "set": "message16", "ray_speedup": 1.8, "threads_speedup": 1.7, **drives}
    # A unit costs the client a millisecond, and a microsecond more for each drive.
    runs = [{"drives": count, "rows": 1000, "efficiency": 0.95, "seconds": 1.0, "unit_wall_ms": 1 + count / 1000} for count in (1, 64, 128)]
    rows = bench.compared({"real": real, "simulated": {"rows": 1000, "runs": runs}})
    judged = [(row["part"], row["ours"], row["holds"]) for row in rows if row["bar"]]
    assert judged == [("real", 1.8, False), ("simulated", 0.95, True)]
    assert all(("simulated" in row["row"]) == (row["part"] == "simulated") for row in rows)
    paper = bench.on_paper(runs, 10.0, 1000, 1000)
    assert (paper["alone_ms"], paper["per_drive_us"]) == pytest.approx((1, 1))
    # With that many drives it has units for all of its time.
    most = paper["most_drives"]
    assert most / 10.0 * (1 + most / 1000) / 1000 == pytest.approx(1, rel=1e-3)


def figures(factor: float) -> dict[str, Any]:
    names = ("seconds", "processor_s", "key_bytes", "input_bytes", "compile_s", "accuracy")
    return {name: factor for name in names} | {"log2_failure": -128.0}


def test_like_is_judged_beside_like(bench: ModuleType) -> None:
    measurements = [
        {"row": task.name, "title": task.title, "bits": task.bits, "ours": figures(1.0), "peers": [] if task.by_ranks else [figures(4.0) | {"asked": -128.0}]}
        for task in bench.TASKS
    ]
    sizes = {"mb": 1.0, "seconds": 9.0, "models_mb": 2.0, "models_seconds": 9.0}
    rows = bench.compared(measurements, {"ours": sizes, "peer": {name: 1.0 for name in sizes}})
    judged = {(row["part"], row["row"]): row for row in rows if row["holds"] is not None}

    # Ours runs a question on all cores, and the peer's figure is that of single rows.
    question = bench.tasks.by_name("filter").title
    assert ("processor", question) in judged
    assert ("seconds", question) not in judged
    assert not any(part == "processor" and name != question for part, name in judged)
    # Features by ranks are compared by the client, which the peer does not do.
    for task in bench.TASKS:
        if task.kind in ("tree", "boosted"):
            assert (("seconds", task.title) in judged) == (not task.by_ranks)
    assert sum(task.by_ranks for task in bench.TASKS) == 2
    # Downloads measure the network.
    installs = {name: row for (part, name), row in judged.items() if part == "install"}
    assert {name: (row["peer"], row["holds"]) for name, row in installs.items()} == {
        "size, alone": ("concrete-python alone", True),
        "size, and what models need": ("Concrete-ML", False),
    }


def test_processor_seconds_at_a_worse_failure_probability_do_not_count(bench: ModuleType) -> None:
    task = bench.tasks.by_name("filter")
    own = figures(1.0) | {"log2_failure": -64.0}
    measurement = {"row": task.name, "title": task.title, "bits": task.bits, "ours": own, "peers": [figures(4.0) | {"asked": -128.0}]}
    rows = bench.compared([measurement], {"ours": {}, "peer": {}})
    assert [row["holds"] for row in rows if row["part"] == "processor"] == [False]


@pytest.mark.parametrize(("stated", "again", "expected"), [(-120.0, None, [None]), (-136.23, -136.5, [None, "-136.3"]), (-136.23, None, [None, "-136.3"])])
def test_ours_is_asked_for_what_the_peer_states(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, stated: float, again: float | None, expected: list[str | None]
) -> None:
    asked: list[str | None] = []

    def answer(command: list[Any], seconds: float) -> dict[str, Any]:
        if "peer.py" in str(command[1]):
            return figures(4.0) | {"log2_failure": stated}
        bound = next((each.removeprefix("--log2-failure=") for each in map(str, command) if each.startswith("--log2-failure")), None)
        asked.append(bound)
        if bound is None:
            return figures(1.0)
        return {"refused": "no set can"} if again is None else figures(2.0) | {"log2_failure": again}

    monkeypatch.setattr(bench, "answer", answer)
    options = argparse.Namespace(quick=False, repetitions=1, seconds=1.0)
    found = bench.measure(bench.tasks.by_name("boosted"), Path("ours"), Path("peer"), options)
    assert asked == expected
    # What cannot be had leaves the first figures, which are then judged as they are.
    assert found["ours"]["log2_failure"] == (-128.0 if again is None else again)
    judged = {row["part"]: row["holds"] for row in bench.compared([found], {"ours": {}, "peer": {}})}
    assert judged["seconds"] == (stated > -128.0 or again is not None)


@pytest.mark.parametrize("name", ["tree", "boosted", "tree-ranks", "boosted-ranks"])
def test_models_have_features_of_the_width_that_the_peer_has(bench: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("xgboost")
    import ours

    seen = []
    monkeypatch.setattr(bench.tasks, "SPLITS", 1)
    monkeypatch.setattr(ours, "measured", lambda program, columns, options, check: seen.append(program) or {"compile_s": 0.0})
    found = ours.model(bench.tasks.by_name(name), argparse.Namespace(rows=2, repetitions=1, log2_failure=bench.tasks.ASKED))
    (program,) = seen
    # Ranks take as many numbers as a feature has thresholds; equal steps take all of their bits.
    tops = {numbers.high for numbers in program.inputs.values()}
    assert (tops == {2**bench.tasks.FEATURE_BITS - 1}) == (not name.endswith("ranks"))
    assert found["accuracy"] > 0.85
