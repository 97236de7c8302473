"""Complete runs become rows, beside the rows of earlier runs."""

import json

import pytest
import torch

from acda.models import create_model
from acda.photos.weights import write_weights
from paper import collect, results, runs
from paper.results import read, result
from paper.runs import PaperRun
from tests.paper.pairs import write_pairs

FACTS = {"commit": "b", "budget": "short", "seeds": [1]}
EARLIER = {**FACTS, "commit": "a", "seeds": [0]}


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(runs, "FOLDER", tmp_path / "runs")


def row(model, value, recipe=None, table="city100", dataset="city100_iphone", metric="psnr_y"):
    return result(table, dataset, model, metric, value, recipe=recipe or f"city100_{model}", seed=0)


def test_saved_figures_stay_when_others_are_collected():
    collect.save_rows("city100", [row("kpn", 1.0), row("restorer", 2.0)], EARLIER)
    collect.save_rows("city100", [row("restorer_conv", 3.0), row("kpn", 4.0)], FACTS)
    saved = read("city100")
    assert [(each["model"], each["value"]) for each in saved["rows"]] == [
        ("restorer", 2.0),
        ("restorer_conv", 3.0),
        ("kpn", 4.0),
    ]
    assert (saved["circumstances"]["commit"], saved["circumstances"]["seeds"]) == ("a, b", [0, 1])


def test_circumstances_of_rows_that_are_all_replaced_are_forgotten():
    collect.save_rows("city100", [row("restorer", 2.0)], EARLIER)
    collect.save_rows("city100", [row("restorer", 3.0)], FACTS)
    assert [each["value"] for each in read("city100")["rows"]] == [3.0]
    assert read("city100")["circumstances"]["commit"] == "b"


def test_commits_of_the_scoring_add_up_as_those_of_the_trainings_do():
    before, after = {**FACTS, "scored_at": "s"}, {**FACTS, "commit": "a", "scored_at": "t"}
    assert collect.merged(after, before) == {**FACTS, "commit": "a, b", "scored_at": "s, t"}
    assert collect.merged(after, FACTS)["scored_at"] == "t"
    assert "scored_at" not in collect.merged(FACTS, FACTS)


def test_error_reductions_are_computed_again_from_all_rows():
    def error(model, value):
        return row(model, value, f"cifar10_{model}", "lenet", "cifar10", "top1_error")

    collect.save_rows("lenet", [error("lenet_acda", 15.0), error("lenet", 20.0)], FACTS)
    collect.save_rows("lenet", [error("lenet", 30.0)], FACTS)
    saved = read("lenet")["rows"]
    assert [each["value"] for each in saved if each["metric"] == "error_reduction"] == [50.0]


@pytest.fixture
def complete(tmp_path, monkeypatch):
    """The files of a run of a small DnCNN that was scored on two test sets."""
    run = PaperRun(
        *("denoising", "", "dncnn", "polyu_sidd_dncnn", "denoising", 16),
        test_sets={"polyu": "denoising/polyu", "sidd_256": "denoising/sidd"},
    )
    monkeypatch.setattr(collect, "RUNS", [run])
    options = {"depth": 3, "width": 8}
    torch.manual_seed(0)
    state = {f"model.{name}": t for name, t in create_model("dncnn", **options).state_dict().items()}
    state["statistics"] = torch.tensor([[0.0] * 3, [255.0] * 3])
    run.out.mkdir(parents=True)
    write_weights(run.weights, state, {"model": "dncnn", "options": json.dumps(options)})
    recipe = {"epochs": 2, "crops": 10, "crop": 16, "batch_size": 4, "optimiser": "adamw", "seed": 0}
    (run.out / "recipe.json").write_text(json.dumps(recipe))
    epochs = [{"seconds": 1800.0, "PSNR": 1.0, "SSIM": 0.1}] * 2
    (run.out / "scores.json").write_text(json.dumps({"epochs": epochs, "circumstances": {"commit": "c"}}))
    for name, noise in (("polyu", 10.0), ("sidd", 30.0)):
        write_pairs(tmp_path / "data" / "denoising" / name, noise=noise)
    return run


def test_a_run_with_test_sets_is_scored_on_each_of_them(complete, tmp_path):
    collect.collect(tmp_path / "data")
    saved = read("denoising")
    assert [(each["dataset"], each["metric"]) for each in saved["rows"]] == [
        ("polyu", "psnr"),
        ("polyu", "ssim"),
        ("sidd_256", "psnr"),
        ("sidd_256", "ssim"),
        ("", "parameters"),
        ("", "multiply_adds_16"),
    ]
    assert all((each["recipe"], each["seed"]) == ("polyu_sidd_dncnn", 0) for each in saved["rows"])
    assert saved["rows"][0]["value"] > saved["rows"][2]["value"]  # less noise; DnCNN starts as the identity
    assert saved["rows"][0]["hours"] == 1.0
    facts = saved["circumstances"]
    assert facts["budget"] == "2 epochs of 10 crops of 16×16 in batches of 4, adamw"
    assert facts["commit"] == "c"
    assert "scored_at" in facts
    assert complete.is_saved


def test_without_data_such_a_run_is_left_out_and_named(complete, capsys):
    collect.collect(None)
    assert read("denoising")["rows"] == []
    assert "denoising: not collected" in capsys.readouterr().out


def test_a_run_without_test_sets_has_the_scores_of_its_last_epoch(complete, monkeypatch):
    run = PaperRun("city100", "city100_iphone", "dncnn", "polyu_sidd_dncnn", "", 16)
    monkeypatch.setattr(collect, "RUNS", [run])
    collect.collect(None)
    figures = {each["metric"]: each["value"] for each in read("city100")["rows"]}
    assert (figures["psnr_y"], figures["ssim_y"]) == (1.0, 0.1)
    assert set(figures) == {"psnr_y", "ssim_y", "parameters", "multiply_adds_16"}
