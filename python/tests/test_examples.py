"""The examples, on a drive in this process and on one that is served."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SALARIES = Path(__file__).parents[2] / "examples" / "python" / "salaries.py"
EXPECTED = ["dept 0 1 2 3", "n 1 2 1 0", "pay 31 112 47 0", "bonus 0 119 5 0"]


def salaries(*arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, str(SALARIES), *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[1:]


def test_salaries_on_an_image(tmp_path: Path) -> None:
    import toroid

    image = str(tmp_path / "drive.img")
    toroid.open(image, create="64MiB").close()
    for _ in range(2):
        assert salaries(image, "tiny-wopbs") == EXPECTED


def test_salaries_over_a_cluster() -> None:
    pytest.importorskip("ray", reason="Ray is not installed, so the example of a cluster is not tested: pip install 'toroid[ray]'")
    done = subprocess.run([sys.executable, str(SALARIES.with_name("cluster.py")), "tiny-wopbs"], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-4:] == EXPECTED


def test_salaries_on_a_served_drive(tmp_path: Path) -> None:
    program = os.environ.get("TOROID") or shutil.which("toroid")
    if program is None or not Path(program).exists():
        pytest.skip("there is no command `toroid` that serves drives; TOROID can name it")
    import toroid

    image = str(tmp_path / "drive.img")
    toroid.open(image, create="64MiB").close()
    serve = [program, "drive", "serve", "--listen", "127.0.0.1:0", "--experimental-computational-programs", image]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        try:
            location = None
            for line in server.stdout:
                if found := re.search(r"nvme\+tcp://\S+", line):
                    location = found[0]
                    break
            assert location is not None
            assert salaries(location, "tiny-wopbs") == EXPECTED
        finally:
            server.terminate()
