"""What a release rests on: the workflow does what .ci/run does, versions agree, the lowest ones are written down."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import deeppc

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def steps(job):
    return yaml.safe_load(WORKFLOW.read_text())["jobs"][job]["steps"]


def commands(job):
    return [step["run"] for step in steps(job) if "run" in step]


def targets(text):
    return re.findall(r"^make ([a-z-]+)$", text, re.MULTILINE)


def test_the_workflow_is_one():
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOW)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_runs_what_ci_runs_on_every_python():
    assert commands("test") == [".ci/run"]
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    pythons = jobs["test"]["strategy"]["matrix"]["python"]
    assert pythons == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    assert commands("oldest") == ["make oldest"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}, "nothing is published that has not passed"


def test_every_target_that_is_called_is_there():
    makefile = (ROOT / "Makefile").read_text()
    called = [*targets((ROOT / ".ci" / "run").read_text()), *targets("\n".join(commands("oldest")))]
    assert {"test", "test-outside", "dist", "oldest"} <= set(called)
    for name in called:
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), f"make {name}"


def test_what_is_published_is_what_was_built_and_tried():
    """``make dist``, the end of .ci/run, leaves its files in dist; these and no others go to the job that publishes."""
    (kept,) = [step["with"] for step in steps("test") if "upload-artifact" in step.get("uses", "")]
    (taken,) = [step["with"] for step in steps("publish") if "download-artifact" in step.get("uses", "")]
    assert (kept["name"], kept["path"]) == (taken["name"], taken["path"]) == ("dist", "dist")
    assert targets((ROOT / ".ci" / "run").read_text())[-1] == "dist"


def test_the_version_has_one_place():
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert version("deeppc") == deeppc.__version__
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)


def test_every_extra_is_there_where_tests_run():
    extras = PROJECT["optional-dependencies"]
    (own,) = [needed.extras for needed in map(Requirement, extras["dev"]) if needed.name == "deeppc"]
    assert own == set(extras) - {"dev"}


def test_lowest_versions_are_those_that_are_tried():
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    tried = {name: Version(number) for name, number in pairs}
    lowest = {}
    for text in PROJECT["dependencies"]:
        needed = Requirement(text)
        (bound,) = needed.specifier
        assert bound.operator == ">=", text
        lowest[needed.name] = Version(bound.version)
    assert tried == lowest
