"""The runs behind the tables: which recipe on which data, with which settings, and where its figures go."""

from dataclasses import dataclass, field
from pathlib import Path

from paper.results import ROOT, Row, read

FOLDER = ROOT / "runs" / "paper"
DENOISING = {"polyu": "denoising/polyu", "sidd_256": "denoising/sidd"}


@dataclass(frozen=True)
class PaperRun:
    """One trained network of one table."""

    table: str
    dataset: str
    model: str
    """what its rows are called; recipe says which network it is"""
    recipe: str
    folder: str
    """of the training data, in the folder of all datasets"""
    size: int
    """side of the images for which its cost is counted"""
    begins_with: str | None = None
    """name of the run whose weights it starts from"""
    variant: str = ""
    """what its name has beside the recipe's"""
    settings: tuple[str, ...] = ()
    """what its command has beside the recipe's"""
    seed: int = 0
    winograd: bool = False
    """whether its 3×3 convolutions are those of winograd.py instead of torch's"""
    test_sets: dict[str, str] = field(default_factory=dict, hash=False)
    """dataset: folder, where its figures are scores photo by photo instead of those of its last epoch"""

    @property
    def name(self) -> str:
        return self.recipe + self.variant

    @property
    def identity(self) -> tuple[str | None, str, int | None]:
        return self.recipe, self.model, self.seed

    @property
    def out(self) -> Path:
        return FOLDER / self.name

    @property
    def log(self) -> Path:
        return FOLDER / f"{self.name}.log"

    @property
    def weights(self) -> Path:
        return weights_of(self.name)

    @property
    def training(self) -> dict[str, str]:
        """What its rows say about how it was trained."""
        return {"recipe": self.recipe, **({"convolutions": "winograd"} if self.winograd else {})}

    @property
    def is_complete(self) -> bool:
        return self.weights.exists()

    @property
    def is_saved(self) -> bool:
        """Whether its figures are in a results file, also when the run is gone."""
        return any(identity(row) == self.identity for row in read(self.table)["rows"])


def weights_of(name: str) -> Path:
    return FOLDER / name / "weights.safetensors"


def identity(row: Row) -> tuple[str | None, str, int | None]:
    """Which run a row was measured of; without a recipe, of none."""
    return row.get("recipe"), row["model"], row.get("seed")


def lenet(dataset: str, model: str) -> PaperRun:
    return PaperRun("lenet", dataset, model, f"{dataset}_{model}", dataset, 32)


def city100(model: str) -> PaperRun:
    return PaperRun("city100", "city100_iphone", model, f"city100_{model}", "city100/City100_iPhoneX", 96)


def counter(kind: str) -> PaperRun:
    return PaperRun(
        "counting",
        "shanghaitech_a",
        f"crowd_counter_s{kind}",
        f"shanghaitech_a_crowd_counter_s{kind}",
        "shanghaitech/part_A",
        512,
        begins_with=f"tinyimagenet20_ad_resnet_s{kind}",
    )


def denoiser(model: str, recipe: str | None = None, variant: str = "", settings: tuple[str, ...] = ()) -> PaperRun:
    return PaperRun(
        "denoising",
        "",
        model,
        f"polyu_sidd_{recipe or model}",
        "denoising",
        96,
        variant=variant,
        settings=settings,
        winograd=(recipe or model) == "dncnn",
        test_sets=DENOISING,
    )


def ablation(table: str, model: str, option: str, value: int, seed: int = 0) -> PaperRun:
    """Table B: `restorer` with another number of atoms or another kernel size, for 1,000 steps."""
    default = value == {"num_atoms": 6, "kernel_size": 7}[option]
    return PaperRun(
        table,
        "city100_iphone",
        model,
        "city100_restorer",
        "city100/City100_iPhoneX",
        96,
        variant="_1000" + ("" if default else f"_{option}_{value}") + (f"_seed_{seed}" if seed else ""),
        settings=(
            *("--epochs", "1", "--crops", "8000", "--seed", str(seed)),
            *(() if default else ("--options", option, str(value))),
        ),
        seed=seed,
    )


RUNS = [
    *(lenet(data, model) for model in ("lenet_acda", "lenet_wide", "lenet") for data in ("cifar10", "cifar100")),
    *(
        PaperRun("tinyimagenet20", "tinyimagenet20", model, f"tinyimagenet20_{model}", "tinyimagenet20", 64)
        for model in ("ad_resnet_s", "ad_resnet_s_conv")
    ),
    *(counter(kind) for kind in ("", "_conv")),
    *(city100(model) for model in ("restorer", "restorer_conv", "restorer_conv_small", "kpn", "lp_kpn")),
    *(
        ablation("ablation_atoms", f"atoms_{m}", "num_atoms", m, seed)
        for m in (3, 5, 6, 7, 9, 11, 13, 15)
        for seed in ((0, 1) if m == 6 else (0,))
    ),
    *(
        ablation("ablation_scales", f"scales_{s}", "kernel_size", 2 * s + 1, seed)
        for s in range(1, 6)
        for seed in ((0, 1) if s == 3 else (0,))
    ),
    *(denoiser(model) for model in ("dncnn", "restorer", "restorer_conv", "restorer_variational", "restorer_relative")),
    denoiser("dncnn_narrow", "dncnn", variant="_width_32", settings=("--options", "width", "32")),
]
