"""The documentation names only what exists, describes every public argument, and builds without a warning."""

import contextlib
import inspect
import io
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import acda
from acda.cli import VERBS, main
from acda.layers.conv_like import ConvLike
from acda.photos.weight_folders import PACKAGED, named_weights
from acda.training.recipes import RECIPES

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
CARDS = sorted([*PACKAGED.glob("*.md"), *(ROOT / "weights" / "research").glob("*.md")])
PAGES = [*DOCS, ROOT / "README.md", ROOT / "CHANGELOG.md", *CARDS]
CODE = re.compile(r"^```(?:sh|bash)?\n(.*?)^```|(?<!`)`([^`\n]+)`(?!`)", re.DOTALL | re.MULTILINE)
# Arguments that mean the same everywhere, and are described at the top of the API page.
SAID_ONCE = {"self", "x", "device", "dtype"}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def test_the_readme_is_short():
    """Without markers, and without tables, whose rows cannot be wrapped."""
    lines = re.sub("<!--.*?-->", "", (ROOT / "README.md").read_text()).splitlines()
    assert len(lines) <= 140
    assert sum(len(line.split()) for line in lines) <= 1300
    assert [line for line in lines if len(line) > 100 and not line.startswith("|")] == []


def commands(page: Path) -> list[list[str]]:
    """Every `acda VERB …` in a shell block or between backticks, as its words."""
    code = "\n".join(block or inline for block, inline in CODE.findall(page.read_text()))
    found = re.findall(r"(?:^|(?<=-m ))acda +(\w[^#\n]*)", code, re.MULTILINE)
    return [shlex.split(line) for line in found]


def test_commands_are_found_in_blocks_and_between_backticks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Use `acda look x.jpg --json`, not `acda`.\n\n```\nacda count a.jpg  # --not this\nx -m acda info\n```\n"
    )
    assert commands(page) == [["look", "x.jpg", "--json"], ["count", "a.jpg"], ["info"]]


@each_page
def test_commands_and_their_options_exist(page):
    for verb, *rest in commands(page):
        assert verb in VERBS, f"acda {verb}"
        recipe = [next((word for word in rest if word in RECIPES), "cifar10_lenet")] if verb == "train" else []
        if verb in ("train", "recipes") and rest and re.match("[a-z]", rest[0]):
            assert rest[0] in RECIPES
        used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)} - {"--help"}
        if used:
            known = options_of(verb, *recipe)
            assert used <= known, f"acda {verb} has no {', '.join(used - known)}"


@cache
def options_of(verb: str, *recipe: str) -> set[str]:
    """The options that `acda VERB --help` lists."""
    with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit):
        main([verb, *recipe, "--help"])
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", shown.getvalue()))


def blocks(page: Path) -> list[str]:
    """The Python code of a page that is not written as a dialogue, which pytest runs as a doctest."""
    found = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [code for code in found if ">>>" not in code]


@pytest.mark.slow
@pytest.mark.skipif("lite_counter" not in named_weights(), reason="acda is installed without weights/research")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_code_without_a_dialogue_runs(page, tmp_path, monkeypatch):
    """With a photo, an enlarged one and a batch of images, in a folder that has the files which pages name."""
    pytest.importorskip("spandrel")
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.zeros((40, 50, 3), np.uint8)).save("photo.jpg")
    shutil.copy(PACKAGED / "denoiser.safetensors", tmp_path)
    names = {name: torch.rand(2 if name == "images" else 1, 3, 32, 32) for name in ("photo", "enlarged", "images")}
    for code in blocks(page):
        exec(code, {"acda": acda, **names})


@each_page
def test_links_and_pictures_lead_to_files(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    places = [link.partition("#")[0] for link in links if not link.startswith(("http://", "https://", "#"))]
    missing = [place for place in places if not (page.parent / place).exists()]
    assert not missing


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_no_line_begins_with_the_marker_of_a_figure(page):
    """A comment at the beginning of a line ends the paragraph, in Markdown."""
    assert not re.findall(r"^\s*<!-- (?:figure|lead|smallest|largest):", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    named = re.findall(r"`((?:tests|paper|benchmarks)/[\w/]+\.\w+)`", page.read_text())
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_figures_without_markers_are_those_of_their_files():
    """Figures of benchmarks and ratios, for which there are no markers."""
    claims = (ROOT / "docs" / "claims.md").read_text()

    def values(file: str, **having: str) -> list[float]:
        rows = json.loads((ROOT / file).read_text())["rows"]
        return [row["value"] for row in rows if row.items() >= having.items()]

    peak = max(values("benchmarks/results/photos.json", metric="peak, MB")) / 1024
    assert f"at most {math.ceil(10 * peak) / 10} GiB" in claims
    median, slowest = (
        max(values("benchmarks/results/explorer.json", metric=f"pointer to picture, {which}, ms"))
        for which in ("median", "slowest")
    )
    assert f"{median:.0f} ms in the median, {slowest:.0f} ms at worst" in claims
    conv, ours = (values("paper/results/toy.json", model=name, metric="mse") for name in ("conv", "acda"))
    ratios = [a / b for a, b in zip(conv, ours, strict=True)]
    assert f"{min(ratios):.0f} to {max(ratios):.0f} times" in claims


def documented() -> list[str]:
    """What the API page shows: functions, classes, and the members of these that it lists."""
    names: list[str] = []
    for line in (ROOT / "docs" / "api.md").read_text().splitlines():
        if shown := re.match(r"\.\. auto(?:function|class):: ([\w.]+)", line):
            names.append(shown[1])
        elif line.startswith("   :members: "):
            owner = names[-1]
            names += [f"{owner}.{member}" for member in line.removeprefix("   :members: ").split(", ")]
    return names


def thing_of(name: str) -> Any:
    """The object of a dotted name; for a property, its getter."""
    thing: Any = acda
    for part in name.split(".")[1:]:
        thing = getattr(thing, part)
    return thing.fget if isinstance(thing, property) else thing


def test_every_public_name_is_on_the_api_page():
    modules = {name for name in acda.__all__ if inspect.ismodule(getattr(acda, name))}
    page = (ROOT / "docs" / "api.md").read_text()
    assert {name for name in set(acda.__all__) - modules if f":: acda.{name}\n" not in page} == set()
    assert {name for name in modules if f":: acda.{name}." not in page} == set()


@pytest.mark.parametrize("name", [name for name in documented() if callable(thing_of(name))])
def test_every_public_argument_is_described(name):
    thing = thing_of(name)
    arguments = set(inspect.signature(thing).parameters) - SAID_ONCE
    if inspect.isclass(thing) and issubclass(thing, ConvLike | acda.AtomGenerator):
        arguments -= set(inspect.signature(nn.Conv2d).parameters)
    description = re.sub(r"^(>>>|\.\.\.) .*$", "", inspect.getdoc(thing) or "", flags=re.MULTILINE)
    assert arguments - set(re.findall(r"\w+", description)) == set()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("furo")
    to = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", ROOT / "docs", to]
    built = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    return to


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site):
    assert {page.with_suffix(".html").name for page in DOCS} <= {page.name for page in site.glob("*.html")}


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site):
    loaded = r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["'](?:https?:)?//[^>]*>"""
    assert [found for page in site.glob("*.html") for found in re.findall(loaded, page.read_text())] == []
    sheets = [*site.rglob("*.css")]
    assert sheets
    assert not any(re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text()) for sheet in sheets)
