"""Score the weights of weights/research, with filters in half precision, on the test data of their tasks.

python -m paper.packaged --data DIR     # DIR as for paper.run; writes results/packaged.json
"""

import argparse
from pathlib import Path

from acda.photos.weight_folders import RESEARCH
from acda.training.run import evaluate
from paper.results import Row, result, write
from paper.runs import DENOISING

# Where the test data of each are, and which of their scores are reported, to how many digits.
TESTED: dict[str, dict[str, str]] = {
    "lenet_acda_cifar10": {"cifar10": "cifar10"},
    "lenet_acda_cifar100": {"cifar100": "cifar100"},
    "crowd_counter": {"shanghaitech_a": "shanghaitech/part_A"},
    "lite_counter": {"shanghaitech_a": "shanghaitech/part_A"},
    "super_resolver": {"city100_iphone": "city100/City100_iPhoneX"},
    "camera_denoiser": DENOISING,
}
METRICS = {"error": ("top1_error", 2), "MAE": ("mae", 2), "root MSE": ("rmse", 2)}
PHOTOS = {"PSNR": ("psnr", 2), "SSIM": ("ssim", 4)}
ON_LUMA = {"PSNR": ("psnr_y", 2), "SSIM": ("ssim_y", 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the datasets")
    data = parser.parse_args().data
    rows: list[Row] = []
    for name in RESEARCH:
        metrics = METRICS | (ON_LUMA if name == "super_resolver" else PHOTOS)
        for dataset, folder in TESTED[name].items():
            scores = evaluate(name, data / folder)
            rows += [
                result("packaged", dataset, name, metric, round(scores[key], digits))
                for key, (metric, digits) in metrics.items()
                if key in scores
            ]
    write("packaged", rows, budget="as packaged")


if __name__ == "__main__":
    main()
