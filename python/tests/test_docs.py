"""Every block of Python in docs/python runs, those of a page one after the other."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "python").rglob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_pages_are_found():
    assert any(BLOCK.search(page.read_text()) for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if program := os.environ.get("TOROID"):
        monkeypatch.setenv("PATH", str(Path(program).resolve().parent), prepend=os.pathsep)
    text, names = page.read_text(), {"__name__": page.stem}
    if '["toroid", ' in text and shutil.which("toroid") is None:
        pytest.skip("the page runs the command `toroid`, and there is none; TOROID can name it")
    if "import ray\n" in text:
        pytest.importorskip("ray", reason="the page needs Ray: pip install 'toroid[ray]'")
    try:
        for block in BLOCK.finditer(text):
            # Lines of errors are those of the page.
            code = "\n" * text.count("\n", 0, block.start(1)) + block[1]
            exec(compile(code, str(page), "exec"), names)  # noqa: S102
    finally:
        # A server ends with its page, also where a block fails.
        for process in names.values():
            if isinstance(process, subprocess.Popen):
                process.kill()
                process.communicate()


def test_code_of_the_readme_runs(capsys):
    (block,) = BLOCK.findall((Path(__file__).parents[2] / "README.md").read_text())
    assert '"message16"' in block
    # A set for tests is quick.
    exec(block.replace('"message16"', '"tiny-wopbs"'), {"__name__": "readme"})  # noqa: S102
    assert "bonus 0 119 5 0" in capsys.readouterr().out
