"""The picture of the README shows commands that the pages have, and is as small as it is meant to be."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import demo_picture
from demo_picture import PICTURE, SCENES, end_of_demo, takes

ROOT = Path(__file__).parents[3]
PRINTED = """
== A Kubernetes control plane
== What Fluxion chose and where the pods ran

 OBJECT      FLUXJOB STATE   NODES FLUXION CHOSE
 job/hello   Completed       node-1                as expected
4 pods were bound by default-scheduler.
"""
KEPT = """
== The cluster keeps running
  kubectl create token me
"""
VERDICT = "\nEvery pod ran where Fluxion had put it (23 s).\n"


def test_every_command_of_the_picture_is_on_a_page() -> None:
    shown = (ROOT / "README.md").read_text() + (ROOT / "docs" / "start.md").read_text()
    assert [command for command in (demo_picture.DEMO, *SCENES) if command not in shown] == []


def test_the_picture_is_shown_small_and_has_the_commands() -> None:
    content = PICTURE.read_text()
    assert len(content.encode()) < 150_000
    text = "".join(
        "".join(each.itertext())
        for each in ElementTree.fromstring(content).iter("{http://www.w3.org/2000/svg}text")
    )
    places = [text.index(f"$ {command}") for command in dict.fromkeys(SCENES)]
    assert places == sorted(places)
    (alternative,) = re.findall(r"!\[([^]]+)\]\(docs/pictures/demo\.svg\)", (ROOT / "README.md").read_text())
    assert len(alternative) > 40


def test_no_token_and_no_folder_of_a_machine_is_in_the_picture() -> None:
    assert re.findall(r"eyJ\w+|/tmp/|/home/|/root/", PICTURE.read_text()) == []


def test_of_the_demo_the_end_is_shown() -> None:
    assert end_of_demo(PRINTED + KEPT + VERDICT) == (
        "...",
        " OBJECT      FLUXJOB STATE   NODES FLUXION CHOSE",
        " job/hello   Completed       node-1                as expected",
        "4 pods were bound by default-scheduler.",
        VERDICT.strip(),
    )
    assert end_of_demo(PRINTED + VERDICT) == end_of_demo(PRINTED + KEPT + VERDICT)


def test_a_scene_is_repeated_until_it_shows_its_point() -> None:
    answers = {
        "kubectl fluxqueue jobs": iter(["", "job/large  default  Pending", "job/large  default  Running"])
    }
    ran: list[str] = []

    def run(command: str) -> str:
        ran.append(command)
        return next(answers[command]) if command in answers else "nodes are reserved  \n"

    shown = list(takes(run))
    assert [take.command for take in shown] == list(SCENES)
    assert shown[1].output == ("job/large  default  Pending",)
    assert ran.count("kubectl fluxqueue jobs") == 3
    assert [take.command for take in shown if take.still] == ["kubectl fluxqueue explain job/large"]
