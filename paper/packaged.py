"""Score the packaged weights, whose filters are in half precision, on the test data of what they were trained for.

python paper/packaged.py --data DIR     # DIR as for run.py; writes results/packaged.json
"""

import argparse
from pathlib import Path
from typing import Any

from run import RESULTS

from acda.photos.weights import PACKAGED
from acda.support.environment import write_results
from acda.training.run import evaluate

# Where the test data of each are, and what is reported of them to how many digits.
TESTED: dict[str, dict[str, str]] = {
    "lenet_acda_cifar10": {"CIFAR-10": "cifar10"},
    "lenet_acda_cifar100": {"CIFAR-100": "cifar100"},
    "crowd_counter": {"ShanghaiTech A": "shanghaitech/part_A"},
    "super_resolver": {"City100, iPhone": "city100/City100_iPhoneX"},
    "denoiser": {"PolyU": "denoising/polyu", "SIDD, 256×256": "denoising/sidd"},
}
METRICS = {
    "error": ("top-1 error, %", 2),
    "MAE": ("MAE", 2),
    "root MSE": ("root MSE", 2),
    "PSNR": ("PSNR, dB", 2),
    "SSIM": ("SSIM", 4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    rows: list[dict[str, Any]] = []
    for file in sorted(PACKAGED.glob("*.safetensors")):
        for dataset, folder in TESTED[file.stem].items():
            scores = evaluate(file.stem, data / folder)
            for key, (metric, digits) in METRICS.items():
                if key in scores:
                    name = f"`{file.stem}` on {dataset}"
                    rows.append({"table": "packaged", "dataset": "", "name": name, "metric": metric})
                    rows[-1]["value"] = round(scores[key], digits)
    write_results(RESULTS / "packaged.json", rows, budget="as packaged")


if __name__ == "__main__":
    main()
