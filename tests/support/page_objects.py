"""The objects of Kubernetes in the YAML of pages, as a reader would apply them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fluxqueue.api import names

__all__ = ["PageObject", "page_objects"]

_BLOCK = re.compile(
    r"(?P<site>^<!-- for sites: [^\n]+ -->\n)?^```yaml\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_FILES = {"kubescheduler.config.k8s.io/v1"}
"""What programs read from a file: no API server has these kinds."""
_VALUES = frozenset(
    yaml.safe_load((Path(__file__).parents[2] / "charts" / "fluxqueue" / "values.yaml").read_text())
)
"""Values of the chart, which a page may show."""


@dataclass(frozen=True)
class PageObject:
    """An object on a page: where it is, and the object."""

    page: str
    line: int
    document: dict[str, Any]

    @property
    def title(self) -> str:
        """What a failed test names."""
        return f"{self.page}:{self.line} {self.document['kind']}"


def page_objects(page: Path) -> Iterator[PageObject]:
    """Yield the objects of a page.
    A block of nothing but ``spec`` is of a FluxQueue; one for sites has kinds that no test here has.
    """
    text = page.read_text()
    for block in _BLOCK.finditer(text):
        if block["site"]:
            continue
        for document in yaml.safe_load_all(block["text"]):
            if document.get("apiVersion") in _FILES or document.keys() <= _VALUES:
                continue
            if set(document) == {"spec"}:
                document = {
                    "apiVersion": names.API_VERSION,
                    "kind": "FluxQueue",
                    "metadata": {"name": "shown"},
                    **document,
                }
            yield PageObject(page.name, text[: block.start()].count("\n") + 1, document)
