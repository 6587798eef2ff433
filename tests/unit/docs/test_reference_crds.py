from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from reference_crds import CRDS, crds_page, definition, shared_parts

ROOT = Path(__file__).parents[3]


def test_every_kind_of_the_chart_has_its_fields() -> None:
    page = crds_page()
    kinds = [line.split()[-1] for line in page.splitlines() if line.startswith("## ")]
    assert kinds == ["FluxAccount", "FluxJob", "FluxQueue", "FluxReservation", "MiniCluster"]
    for row in (
        "| `policy` | string |",
        "| `containers[].resources",
        "| `hold` | boolean |",
        "| `limits.resources` | map to integer or string |",
    ):
        assert row in page
    assert "{{" not in page


def test_no_field_is_shown_twice() -> None:
    for section in crds_page().split("\n### ")[1:]:
        fields = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        assert len(fields) == len(set(fields)), section.splitlines()[0]


@pytest.mark.parametrize("name", ["fluxjobs", "fluxqueues", "fluxaccounts", "fluxreservations"])
def test_a_template_is_read_as_helm_renders_it(name: str) -> None:
    rendered = yaml.safe_load_all((ROOT / "deploy" / "crds.yaml").read_text())
    spec = next(each["spec"] for each in rendered if each["metadata"]["name"].startswith(f"{name}."))
    read = definition((CRDS / f"{name}.yaml").read_text(), shared_parts())
    assert read["spec"]["versions"][0]["schema"] == spec["versions"][0]["schema"]


def test_shared_parts_are_put_in_with_those_in_them() -> None:
    parts = {"outer": 'a: 1\nb:\n  {{- include "inner" . | nindent 2 }}', "inner": "c: 2"}
    assert definition(
        '{{- /* no */}}\nx:\n  {{- include "outer" . | nindent 2 }}\ny: {{ .Values.y }}\n', parts
    ) == {"x": {"a": 1, "b": {"c": 2}}}


def test_a_shared_part_gets_the_values_of_its_dictionary() -> None:
    parts = {"part": "a: {{ .what }}"}
    assert definition(
        'x:\n  {{- include "part" (dict "what" "1 (one)" "more" "2") | nindent 2 }}\n', parts
    ) == {"x": {"a": "1 (one)"}}
