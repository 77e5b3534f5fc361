"""What the benchmarks in Python share: when, where and how busy that was, rows in the form that all results have, and pages made from them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
RESULTS = BENCH.parent / "docs" / "results"


def say(text: str) -> None:
    """Progress goes to standard error."""
    print(text, file=sys.stderr, flush=True)


def date() -> str:
    """Now, in UTC."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def load() -> str:
    """Load averages of 1, 5 and 15 minutes."""
    return " ".join(f"{each:.2f}" for each in os.getloadavg())


def machine() -> str:
    """Processors and kernel in a few words, as the pages of all benchmarks have them."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown processor")
    return f"{len(os.sched_getaffinity(0))} processors ({name}), Linux {platform.release()}"


def kept(name: str) -> dict[str, Any]:
    """What a page showed of former runs beside its rows."""
    data = RESULTS / "data" / f"{name}.json"
    return json.loads(data.read_text()) if data.exists() else {}


def write(name: str, rows: list[dict[str, Any]], data: dict[str, Any]) -> None:
    """Keeps the figures of a page, and has the pages made from them."""
    (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=2) + "\n")
    (RESULTS / "data" / f"{name}.json").write_text(json.dumps(data, indent=2) + "\n")
    subprocess.run(["cargo", "run", "--quiet", "--locked", "-p", "toroid-bench-common"], cwd=BENCH, check=True, stdout=sys.stderr)
