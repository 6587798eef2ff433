"""What docs/minicluster-from-operator.md says of fields, paths and names is what MiniClusters have."""

from __future__ import annotations

import tomllib
from pathlib import Path

from support.minicluster_builders import IMAGE, minicluster, shares

from fluxqueue.minicluster.render import FluxCluster, config_map
from fluxqueue.minicluster.rules import find_problems

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "minicluster-from-operator.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_each_field_without_effect_is_named() -> None:
    spec = {"flux": {"arch": "arm", "mungeSecret": "munge"}, "pod": {"resources": {"cpu": "1"}}}
    dead = [
        said.partition(" ")[0]
        for said in find_problems(minicluster(**spec)).warnings
        if "does nothing" in said
    ]
    assert len(dead) == 3
    assert all(f"`{path.removeprefix('spec.')}`" in section("Removed") for path in dead)


def test_files_and_names_are_where_the_page_says() -> None:
    data = config_map(FluxCluster.of(minicluster(), IMAGE), shares(4))["data"]
    config = tomllib.loads(data["broker.toml"])
    assert config["bootstrap"]["curve_cert"] == "/mnt/flux/config/curve/curve.cert"
    assert config["bootstrap"]["hosts"] == [{"host": "lammps-[0-3]"}]
    assert config["bootstrap"]["default_port"] == 8050
    assert "archive" not in config
    scripts = "\n".join(text for name, text in data.items() if name.endswith(".sh"))
    said = section("Paths and names")
    for path in ("/etc/flux/config/broker.toml", "/curve/curve.cert", "/home"):
        assert f"/mnt/flux/config{path}" in said
        assert f"$fq_config{path}" in scripts
    for path in ("etc/flux/system", "flux-operator-complete"):
        assert path in said
        assert path not in scripts
