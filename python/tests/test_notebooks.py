"""The notebooks of examples/notebooks run with parameters for tests, and are kept without outputs; long calls in notebooks show how far they are, and end when the
kernel is interrupted."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

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


@pytest.fixture
def cells(tmp_path, monkeypatch):
    """Runs cells of one kernel, and gives their outputs."""
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    book = nbformat.v4.new_notebook()
    runner = NotebookClient(book, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})

    def run(source, **options):
        book.cells.append(nbformat.v4.new_code_cell(source))
        runner.execute_cell(book.cells[-1], len(book.cells) - 1, **options)
        return book.cells[-1].outputs

    run.runner = runner
    with runner.setup_kernel():
        yield run


START = """
import toroid
client, drive = toroid.Client.generate("tiny-wopbs"), toroid.open()
drive.install(client.public_keys())
table = drive.upload("t", client.encrypt({"x": [1, 2] * 50}, {"x": "u4"}))
program = toroid.program(x=toroid.u4)(lambda x: x + 1)
"""


@pytest.mark.parametrize("call", ["program.run", "await program.arun"])
def test_bars_in_a_notebook(cells, call):
    assert cells(START) == []
    outputs = cells(f"result = {call}(table, log2_failure=-40, progress=True)")
    # One for each stage, at its end; no text beside them.
    assert outputs
    for output in outputs:
        assert re.fullmatch(r'<progress value="100" max="100"></progress> \w[\w -]*: (\d+) of \1 \(100 %\), \d+\.\d s', output.data["text/html"])
    assert any(" map: 100 of 100" in output.data["text/html"] for output in outputs)


@pytest.mark.parametrize(("call", "error"), [("program.run", "KeyboardInterrupt"), ("await program.arun", "CancelledError")])
def test_the_interrupt_button_ends_a_call_in_a_notebook(cells, call, error):
    cells(START)
    # The button sends this signal to the kernel.
    cells("""
import os, signal, time
def interrupt(stage, done, total):
    if (stage, done) == ("map", 0):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
""")
    with pytest.raises(CellExecutionError, match=error):
        cells(f"{call}(table, log2_failure=-40, progress=interrupt)")
    (output,) = cells("client.decrypt(program.run(table, log2_failure=-40)).tolist() == [2, 3] * 50")
    assert output.data["text/plain"] == "True"
