"""The notebooks of examples/notebooks run with parameters for tests, and are kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
#: What stands in place of the cell of parameters; "tiny-wopbs" protects nothing, and is quick.
QUICK = {
    "quickstart": 'params = "tiny-wopbs"',
    "models": 'params, score_bits, table_bits, trees = "tiny-wopbs", 8, 8, 2',
}


def test_every_notebook_is_run():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(QUICK)


@pytest.mark.parametrize("name", QUICK)
def test_a_notebook_runs(name, tmp_path, monkeypatch):
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    codes = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in codes), "clear the outputs before you commit"
    (parameters,) = (cell for cell in codes if "parameters" in cell.metadata.get("tags", []))
    parameters.source = QUICK[name]
    NotebookClient(book, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in codes for output in cell.outputs if "image/svg+xml" in output.get("data", {})]
    assert len(shown) == 1
