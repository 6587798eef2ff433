from __future__ import annotations

import ast
import re

from reference_client import client_page

import fluxqueue.client as client


def test_every_public_name_is_on_the_page_with_its_signature() -> None:
    page = client_page()
    own = [name for name in client.__all__ if getattr(client, name).__module__.startswith("fluxqueue.client")]
    assert own
    assert [name for name in own if f"## {name}\n" not in page and f"| `{name}` |" not in page] == []
    assert "def wait" not in page
    assert "wait(*, timeout" in page or "wait(timeout" in page


def test_every_signature_is_python() -> None:
    blocks = re.findall(r"```python\n(async )?(\S*?)(\(.*)\n```", client_page())
    assert len(blocks) > 50
    for word, name, rest in blocks:
        ast.parse(f"{word}def {name.rpartition('.')[2]}{rest}: ...")
