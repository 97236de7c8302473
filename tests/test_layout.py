"""Where the tests of a module are: at its mirrored address, or in the file that tests several modules together."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# The tests of backends/ are by operator: tests/backends says which.
MODULES = sorted(
    path.relative_to(ROOT / "acda").with_suffix("").as_posix()
    for path in (ROOT / "acda").rglob("*.py")
    if path.stem not in ("__init__", "__main__") and "backends" not in path.parts
)
TOGETHER = {
    "cli/test_demo.py": ["training/toy"],
    "cli/test_main.py": ["cli/arguments", "support/arguments", "support/lines", "support/names"],
    "cli/test_restore.py": ["cli/denoise", "cli/upscale", "photos/restore_files"],
    "cli/test_count.py": ["photos/count_files"],
    "insight/test_page.py": ["cli/explore"],
    "insight/test_server.py": ["insight/guard", "insight/looks"],
    "insight/test_view.py": ["insight/capture", "insight/draw", "insight/report", "insight/subject", "support/drawing"],
    "layers/test_baselines.py": [
        *("layers/cond_conv", "layers/dynamic_conv", "layers/dynamic_filter", "layers/experts"),
        *("layers/involution", "layers/kernel_prediction", "layers/pixel_adaptive"),
    ],
    "layers/test_as_conv2d.py": ["layers/conv_like"],
    "layers/test_adapt.py": ["layers/shared_filters"],
    "layers/test_generator.py": ["layers/batch_norm"],
    "models/test_ad_resnet.py": ["models/blocks"],
    "models/test_options.py": ["models/photo_unet"],
    "test_compat.py": [
        *("compat/carafe", "compat/ddf", "compat/involution", "compat/lsnet", "compat/natten", "compat/stfan"),
    ],
    "test_convert.py": ["swapping"],
    "test_cost.py": ["support/environment"],
    "test_export_files.py": ["cli/export", "models/whole_strides", "photos/on_tensors"],
    "test_functional.py": ["checks"],
    "test_rooms.py": ["support/extras"],
    "training/data/test_crowds.py": ["training/data/crowd_crops"],
    "training/data/test_pairs.py": ["training/data/pair_crops"],
    "training/tasks/test_elbo.py": ["models/variational"],
    "training/tasks/test_task.py": ["training/tasks/classification", "training/tasks/counting"],
    "training/test_checkpoints.py": ["training/checkpoint_form"],
    "training/test_divergence.py": ["training/callbacks"],
    "training/test_recipes.py": [
        *("cli/recipes", "training/recipes/classification", "training/recipes/counting"),
        *("training/recipes/denoising", "training/recipes/super_resolution"),
    ],
    "training/test_run.py": ["cli/evaluate", "training/curves"],
    "training/test_settings.py": ["training/recipe"],
}
FILE = {module: file for file, modules in TOGETHER.items() for module in modules}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_its_tests_where_the_layout_says(module):
    room, _, name = module.rpartition("/")
    mirrored = Path("tests", room, f"test_{name}.py")
    if module in FILE:
        assert (ROOT / "tests" / FILE[module]).exists()
        assert not (ROOT / mirrored).exists(), f"{mirrored} exists: take {module} out of TOGETHER"
    else:
        assert (ROOT / mirrored).exists(), f"{module} needs {mirrored}, or a line in TOGETHER"


def test_no_module_is_listed_that_is_gone():
    assert set(FILE) <= set(MODULES)
