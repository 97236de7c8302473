"""Files beside the code: workflows, hooks, templates and the citation are well formed and agree with the rest."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import acda

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="acda's source distribution has no .github")


def steps(path: Path) -> list[str]:
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_workflows_follow_githubs_schema():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    checked = subprocess.run([*command, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(path):
    made = [line.split()[1] for line in steps(path) if line.startswith("make ")]
    assert made
    assert set(made) <= set(TARGETS)


def test_workflows_run_tests_that_exist():
    (line,) = [
        line for line in steps(ROOT / ".github" / "workflows" / "tests.yml") if "pytest" in line and "-q" in line
    ]
    named = [word for word in line.split() if word.startswith("tests/")]
    assert named
    assert all((ROOT / word).exists() for word in named)


def test_the_hook_is_what_make_check_is():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == ["make check"]


def test_the_citation_is_of_this_version_and_of_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys(), "what the format requires"
    assert citation["version"] == acda.__version__
    assert citation["license"] == "Apache-2.0"
    (paper,) = citation["references"]
    assert paper["title"] in (ROOT / "README.md").read_text()
    assert [author["family-names"] for author in paper["authors"]] == ["Wang", "Miao", "Hu", "Qiu"]


def test_templates_ask_for_what_exists():
    from acda.cli import VERBS

    bug = (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.md").read_text()
    assert bug.startswith("---\nname:")
    assert set(re.findall(r"`acda (\w+)`", bug)) <= VERBS.keys()
    assert (ROOT / "SECURITY.md").exists()
