"""The package index has another project called fluxqueue: nobody is told to install that one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from fluxqueue.api.release import DISTRIBUTION, version

ROOT = Path(__file__).resolve().parents[3]
TEXTS = (".md", ".py", ".yaml", ".yml", ".tpl", ".txt", ".toml", ".in", ".sh")
INSTALLS = re.compile(r"pip3? install (?:-\S+ )*['\"]?(fluxqueue[\w-]*)")


def test_every_page_and_message_names_our_distribution() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()
    named = {
        (name, found)
        for name in tracked
        if name.endswith(TEXTS) and (ROOT / name).is_file()
        for found in INSTALLS.findall((ROOT / name).read_text())
    }
    assert {found for _, found in named} == {DISTRIBUTION}, sorted(
        each for each in named if each[1] != DISTRIBUTION
    )


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", version())
