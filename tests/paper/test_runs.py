"""The runs behind the tables have recipes, and rows of their own."""

import pytest

from acda.training.recipes import RECIPES
from paper import results
from paper.results import result, write
from paper.runs import RUNS


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)


def named(name):
    return next(run for run in RUNS if run.name == name)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.table}-{run.model}-{run.dataset}-{run.seed}")
def test_a_run_has_a_recipe(run):
    assert run.recipe in RECIPES
    assert run.begins_with is None or run.begins_with in {other.name for other in RUNS}


def test_no_two_runs_of_a_table_have_the_same_rows():
    rows = [(run.table, *run.identity) for run in RUNS]
    assert len(rows) == len(set(rows))


def test_a_saved_run_is_known_by_its_rows():
    run, other = named("city100_restorer"), named("city100_kpn")
    assert not run.is_saved
    write("city100", [result("city100", run.dataset, run.model, "psnr_y", 2.0, **run.training, seed=0)])
    assert run.is_saved
    assert not other.is_saved


def test_a_seed_is_a_run_of_its_own():
    both = [run for run in RUNS if run.model == "atoms_6"]
    assert [run.seed for run in both] == [0, 1]
    rows = [result("ablation_atoms", both[1].dataset, "atoms_6", "psnr_y", 2.0, **both[1].training, seed=1)]
    write("ablation_atoms", rows)
    assert [run.is_saved for run in both] == [False, True]


def test_rows_tell_whose_convolutions_trained_a_network():
    for name in ("polyu_sidd_dncnn", "polyu_sidd_dncnn_width_32"):
        assert named(name).training == {"recipe": "polyu_sidd_dncnn", "convolutions": "winograd"}
    assert named("polyu_sidd_restorer").training == {"recipe": "polyu_sidd_restorer"}
