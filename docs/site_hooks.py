"""Hooks of the site (`mkdocs.yml`): what its pages need from outside of docs/.

Pages link to Markdown files of the repository, as they do where it is browsed. These files become pages of
the site, below ``repository/``, and the links lead there. Every other link out of docs/ is left as it is, so
that the build names it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

__all__ = ["MERMAID", "on_config", "on_files", "on_page_markdown", "with_links"]

ROOT = Path(__file__).resolve().parents[1]
MERMAID = ROOT / "build" / "mermaid" / "mermaid.min.js"
"""Put there by `docs/fetch_mermaid.py`."""
_SCRIPT = "javascripts/mermaid.min.js"
_REPOSITORY = {
    "CHANGELOG.md": "repository/changelog.md",
    "CONTRIBUTING.md": "repository/contributing.md",
    "README.md": "repository/readme.md",
    "charts/fluxqueue/README.md": "repository/chart.md",
    "deploy/README.md": "repository/deploy.md",
}
"""File of the repository -> page of the site."""
_LINK = re.compile(r"(?P<head>\]\()(?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?P<tail>\))")


def on_config(config: Any) -> Any:
    """Use the script of Mermaid that was fetched, so that readers load it from nowhere else."""
    if MERMAID.is_file():
        config["extra_javascript"].append(_SCRIPT)
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages of the repository, and the script."""
    for source, page in _REPOSITORY.items():
        files.append(
            File.generated(config, page, content=with_links((ROOT / source).read_text(), source, page))
        )
    if MERMAID.is_file():
        files.append(File.generated(config, _SCRIPT, content=MERMAID.read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_others: Any) -> str:
    """Lead the links of a page out of docs/ to the pages of the repository."""
    path = page.file.src_uri
    return markdown if path in _REPOSITORY.values() else with_links(markdown, f"docs/{path}", path)


def with_links(markdown: str, source: str, page: str) -> str:
    """Return a page with links for the site.

    Parameters
    ----------
    markdown
        The text of the page.
    source
        Its path in the repository, to which its links are relative.
    page
        Its path in the site.
    """
    return "".join(_rewritten(markdown, source, page))


def _rewritten(markdown: str, source: str, page: str) -> Iterator[str]:
    end = 0
    for link in _LINK.finditer(markdown):
        there = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["target"]))
        target = _REPOSITORY.get(there) or (there.removeprefix("docs/") if there.startswith("docs/") else "")
        yield markdown[end : link.start("target")]
        yield posixpath.relpath(target, posixpath.dirname(page) or ".") if target else link["target"]
        end = link.end("target")
    yield markdown[end:]
