"""Results outlive their runs: what a queue collects stands beside what earlier ones saved."""

import json

import pytest

from tests.paper.scripts import script

run = script("run")
FACTS = {"commit": "b", "budget": "short", "seeds": [1]}


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    return tmp_path


def row(name, value, dataset="City100, iPhone", metric="PSNR on Y, dB"):
    return {"table": "city100", "dataset": dataset, "name": name, "recipe": "r", "metric": metric, "value": value}


def test_saved_figures_stay_when_others_are_collected(results):
    run.save_rows("city100", [row("KPN, l = 5", 1.0), row("ACDA", 2.0)], {**FACTS, "commit": "a", "seeds": [0]})
    run.save_rows("city100", [row("the same with Conv2d 7×7", 3.0), row("KPN, l = 5", 4.0)], FACTS)
    saved = json.loads((results / "city100.json").read_text())
    names = ["ACDA", "the same with Conv2d 7×7", "KPN, l = 5"]
    assert [(each["name"], each["value"]) for each in saved["rows"]] == list(zip(names, [2.0, 3.0, 4.0], strict=True))
    assert saved["circumstances"]["commit"] == "a, b"
    assert saved["circumstances"]["seeds"] == [0, 1]


def test_commits_of_the_scoring_add_up_as_those_of_the_trainings_do(results):
    before, after = {**FACTS, "scored at": "s"}, {**FACTS, "commit": "a", "scored at": "t"}
    assert run.also(after, before) == {**FACTS, "commit": "a, b", "scored at": "s, t"}
    assert run.also(after, FACTS)["scored at"] == "t"
    assert "scored at" not in run.also(FACTS, FACTS)


def test_rows_tell_whose_convolutions_trained_a_network():
    arms = {arm.run: arm.training for arm in run.ARMS if arm.table == "denoising"}
    for name in ("polyu_sidd_dncnn", "polyu_sidd_dncnn_width_32"):
        assert arms[name] == {"recipe": "polyu_sidd_dncnn", "convolutions": "paper/winograd.py's"}
    assert arms["polyu_sidd_restorer"] == {"recipe": "polyu_sidd_restorer"}


def test_circumstances_of_rows_that_are_all_replaced_are_forgotten(results):
    run.save_rows("city100", [row("ACDA", 2.0)], {**FACTS, "commit": "a", "seeds": [0]})
    run.save_rows("city100", [row("ACDA", 3.0)], FACTS)
    saved = json.loads((results / "city100.json").read_text())
    assert [each["value"] for each in saved["rows"]] == [3.0]
    assert saved["circumstances"]["commit"] == "b"


def test_gains_are_counted_again_from_all_rows(results):
    error = run.METRICS["lenet"]["error"][0]
    run.save_rows("lenet", [row("LeNet + ACDA", 15.0, "CIFAR-10", error), row("LeNet", 20.0, "CIFAR-10", error)], FACTS)
    run.save_rows("lenet", [row("LeNet", 30.0, "CIFAR-10", error)], FACTS)
    saved = json.loads((results / "lenet.json").read_text())["rows"]
    assert [each["value"] for each in saved if each["metric"] == run.GAIN] == [50.0]


def test_what_is_saved_is_not_run_again(results):
    arm, other = (next(arm for arm in run.ARMS if arm.run == name) for name in ("city100_restorer", "city100_kpn"))
    assert not arm.is_saved
    run.save_rows("city100", [row("ACDA", 2.0)], FACTS)
    assert arm.is_saved
    assert not other.is_saved


def test_a_seed_is_a_run_of_its_own(results):
    arms = [arm for arm in run.ARMS if arm.table == "ablation_atoms" and arm.name == "m = 6"]
    assert len(arms) == 2
    run.save_rows("ablation_atoms", [row("m = 6", 2.0, arms[1].dataset)], FACTS)
    assert [arm.is_saved for arm in arms] == [False, True]
