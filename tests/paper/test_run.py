"""The queue trains what is neither complete nor saved."""

import pytest

from paper import results, run, runs
from paper.results import result, write


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(runs, "FOLDER", tmp_path / "runs")


def names(*words, again=False):
    return [each.name for each in run.wanted(list(words), again)]


def test_runs_are_chosen_by_words_in_their_names():
    assert names("lp_kpn", "lenet_wide") == ["cifar10_lenet_wide", "cifar100_lenet_wide", "city100_lp_kpn"]


def test_a_run_that_two_tables_share_is_trained_once():
    assert names("city100_restorer_1000").count("city100_restorer_1000") == 1


def test_what_is_complete_or_saved_is_not_run_again():
    weights = runs.weights_of("city100_kpn")
    weights.parent.mkdir(parents=True)
    weights.touch()
    facts = {"recipe": "city100_lp_kpn", "seed": 0}
    write("city100", [result("city100", "city100_iphone", "lp_kpn", "psnr_y", 2.0, **facts)])
    assert names("city100_kpn", "city100_lp_kpn") == []
    assert names("city100_kpn", "city100_lp_kpn", again=True) == ["city100_lp_kpn"]
