"""The reference of licences: every distribution that the images contain, with its licence as its own metadata
says it.

The names are those of `images/queue.txt` and `images/webhook.txt`, which list what is installed with digests.
The licences come from the installed distributions, which have the same versions (`constraints.txt`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageMetadata, metadata
from pathlib import Path
from typing import Final

from markdown_tables import cell, code, table

__all__ = ["ALLOWED", "identifiers", "licence_of", "licences_page", "pins"]

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ("queue", "webhook")

ALLOWED: Final = frozenset(
    {
        *("MIT", "MIT-0", "ISC", "0BSD", "BSD", "BSD-2-Clause", "BSD-3-Clause", "Zlib", "CC0-1.0"),
        *("Apache-2.0", "PostgreSQL", "PSF-2.0", "MPL-2.0", "LGPL-3.0-only", "LGPL-3.0-or-later"),
    }
)
"""SPDX identifiers. `BSD` is what a distribution says that does not say which of them."""

_SAID: Final[Mapping[str, str]] = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd license": "BSD",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
"""What metadata of older forms say -> SPDX."""
_IN_FILE: Final[Mapping[str, str]] = {
    "axe-playwright-python": "MIT",
    "cel-python": "Apache-2.0",
    "promql-parser": "MIT",
}
"""Distributions whose metadata names no licence, with that of their file LICENSE."""
_OPERATORS: Final = re.compile(r"\s+(?:AND|OR|WITH)\s+|[()]")
_HEAD = """# Licences

Written by `docs/generate.py` from the metadata of the distributions. fluxqueue itself is MIT
([LICENSE](../../LICENSE)). Its images contain these distributions, a Python, and the base that
`images/bases.json` names; the bill of materials of each build ([images](../images.md)) lists the components
of all.

A test refuses a distribution under another licence than these, and so it does for the tools of the project:
{allowed}.
Those under LGPL (psycopg) and MPL are used unchanged, as libraries of their own.

The dashboard serves uPlot 1.6.32 (MIT), which draws its charts, unchanged from `dashboard/static/vendor/`,
with its licence beside it.
"""


def pins(file: Path) -> dict[str, str]:
    """Return name -> version of what a file of requirements pins."""
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", file.read_text(), re.MULTILINE))


def licence_of(name: str) -> str:
    """Return the licence of an installed distribution as an SPDX expression.

    Raises
    ------
    LookupError
        Its metadata names none, or one that is not known here.
    """
    for said in (*_said(metadata(name)), _IN_FILE.get(name, "")):
        if said and identifiers(said) <= ALLOWED:
            return said
    raise LookupError(
        f"{name}: no licence that is known is in its metadata: add it to docs/reference_licences.py, "
        "or do without it"
    )


def identifiers(expression: str) -> set[str]:
    """Return the identifiers of an SPDX expression."""
    return {part for part in _OPERATORS.split(expression) if part}


def licences_page() -> str:
    """Return the page."""
    shipped = {image: pins(ROOT / "images" / f"{image}.txt") for image in IMAGES}
    versions = {name: version for found in shipped.values() for name, version in found.items()}
    rows = (
        (
            code(name),
            version,
            cell(licence_of(name)),
            ", ".join(image for image in IMAGES if name in shipped[image]),
        )
        for name, version in sorted(versions.items())
    )
    head = _HEAD.format(allowed=", ".join(sorted(ALLOWED)))
    return "\n".join([head, *table(("distribution", "version", "licence", "images"), rows)]).rstrip() + "\n"


def _said(about: PackageMetadata) -> Iterator[str]:
    """Yield what metadata say of the licence, the newest form first."""
    yield "".join(about.get_all("License-Expression") or ())
    short = "".join(about.get_all("License") or ()).strip()
    if "\n" not in short:
        yield _SAID.get(short.lower(), short)
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in about.get_all("Classifier") or ()
        if each.startswith("License ::")
    ]
    known = sorted({_SAID[each.lower()] for each in classifiers if each.lower() in _SAID})
    yield " OR ".join(known)
