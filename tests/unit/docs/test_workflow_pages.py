"""What the pages about workflow managers show is what is tested with them,
and their commands are understood.
"""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
import yaml

from fluxqueue.cli.plugin import VERBS, plugin_parser, split_words

ROOT = Path(__file__).parents[3]
GUIDES = ROOT / "docs" / "guides"
PAGES = ["snakemake", "parsl", "dask", "airflow", "argo"]


def page(name: str) -> str:
    return (GUIDES / f"{name}.md").read_text()


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)


def test_the_workflow_of_snakemake_is_the_one_that_is_tested() -> None:
    assert (ROOT / "tests/clients/Snakefile").read_text() in blocks("snakemake", "text")


def test_the_program_of_parsl_is_the_one_that_is_tested() -> None:
    (program,) = blocks("parsl", "python")
    assert (ROOT / "tests/clients/parsl_workflow.py").read_text().endswith(program)


@pytest.mark.parametrize(("name", "example"), [("dask", "daskcluster"), ("argo", "argo-workflow")])
def test_the_manifest_is_the_example_that_is_applied(name: str, example: str) -> None:
    assert (ROOT / "examples/ecosystem" / f"{example}.yaml").read_text() in blocks(name, "yaml")


@pytest.mark.parametrize("name", PAGES)
def test_each_page_goes_from_the_namespace_to_what_does_not_work(name: str) -> None:
    titles = re.findall(r"^## (.+)$", page(name), re.MULTILINE)
    assert titles[0] == "Before you start"
    assert titles[-1] == "What does not work"
    assert "kubectl label namespace lab fluxqueue/managed=true" in page(name)


@pytest.mark.parametrize("name", PAGES)
def test_what_can_be_typed_or_read_is_understood(name: str) -> None:
    for line in re.findall(r"^kubectl fluxqueue (.+)$", page(name), re.MULTILINE):
        own, _ = split_words(shlex.split(line))
        assert plugin_parser(own).parse_args(own).command in VERBS
    for block in blocks(name, "python"):
        ast.parse(block)
    for block in blocks(name, "yaml"):
        assert list(yaml.safe_load_all(block))
