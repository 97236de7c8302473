"""The notebooks of the documentation run from a fresh kernel, and are kept without outputs."""

from pathlib import Path

import pytest

nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["convert", "denoise", "look_inside"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_kept(path):
    """They would contain details of the machine, and change with every run."""
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs
            assert cell.execution_count is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, monkeypatch):
    root = FOLDER.parents[1]
    if path.stem == "denoise" and not (root / "weights" / "research").exists():
        pytest.skip("acda is installed without weights/research")
    monkeypatch.setenv("PYTHONPATH", str(root))
    nbclient.NotebookClient(nbformat.read(path, 4), timeout=600, resources={"metadata": {"path": str(root)}}).execute()
