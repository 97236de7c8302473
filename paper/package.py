"""Put the weights of a run into weights/research, in half the bytes. The card beside them is written by hand.

    python -m paper.package runs/paper/RECIPE NAME             # weights/research/NAME.safetensors
    python -m paper.package runs/paper/RECIPE NAME --free      # into the package: trained on free data alone

Filters are stored in float16; normalisations and bases stay in float32. `acda evaluate NAME --data DIR` shows what that
costs.
"""

import argparse
from pathlib import Path

from acda.photos.weight_folders import CHECKOUT, PACKAGED
from acda.photos.weights import read_weights, write_weights
from acda.training.recipe import read_recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--free", action="store_true")
    options = parser.parse_args()
    tensors, facts = read_weights(options.run / "weights.safetensors")
    if "recipe" not in facts:  # of a run that was made before weights told it
        facts["recipe"] = read_recipe(options.run / "recipe.json").to_json()
    smaller = {name: t.half() if t.ndim > 2 and not name.endswith(".bases") else t for name, t in tensors.items()}
    to = (PACKAGED if options.free else CHECKOUT / "weights" / "research") / f"{options.name}.safetensors"
    write_weights(to, smaller, facts)
    card = to.with_suffix(".md")
    print(f"{to.name}: {to.stat().st_size / 1e6:.1f} MB; {'card present' if card.exists() else f'write {card.name}'}")


if __name__ == "__main__":
    main()
