"""The reference of the custom resources: every field of each kind, from the schemas of the chart.

The schemas are templates, of which only the parts that several share (``include``) have to be put in. So the
page needs no Helm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from markdown_tables import cell, code, table

__all__ = ["crds_page", "definition", "shared_parts"]

Json = Mapping[str, Any]
CRDS = Path(__file__).resolve().parents[1] / "charts" / "fluxqueue" / "templates" / "crds"
_HEAD = """# Kinds: every field

Written by `docs/generate.py` from the schemas of the CRDs. What people write and how it acts is in
[objects](objects.md), [accounts](../accounts.md), [reservations](../reservations.md) and
[MiniClusters](../minicluster.md). `[]` marks the items of a list, `*` any key. `kubectl explain KIND.spec`
shows the same of the installed version.
"""
_DEFINE = re.compile(r'\{\{-? define "(?P<name>[^"]+)" -?\}\}\n(?P<text>.*?)\{\{-? end -?\}\}', re.DOTALL)
_INCLUDE = re.compile(
    r'^ *\{\{-? include "(?P<name>[^"]+)" (?:\.|\(dict(?P<values>(?: '
    r'"[^"]*")*)\)) \| nindent (?P<indent>\d+) \}\}$',
    re.MULTILINE,
)
_VALUE = re.compile(r'"(\w+)" "([^"]*)"')
_BOUNDS = (
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("maxLength", "at most {} characters"),
    ("maxItems", "at most {} items"),
)


def crds_page() -> str:
    """Return the page."""
    parts, lines = shared_parts(), [_HEAD]
    for path in sorted(CRDS.glob("*.yaml")):
        lines += _kind(definition(path.read_text(), parts))
    return "\n".join(lines).rstrip() + "\n"


def shared_parts() -> dict[str, str]:
    """Return the parts of schemas that templates share, by name."""
    return {
        match["name"]: match["text"]
        for path in CRDS.glob("*.tpl")
        for match in _DEFINE.finditer(path.read_text())
    }


def definition(template: str, parts: Mapping[str, str]) -> Json:
    """Return the CRD of a template of the chart: its shared parts put in,
    what depends on the installation left out.
    """
    text = re.sub(r"\{\{-? ?/\*.*?\*/ ?-?\}\}", "", template, flags=re.DOTALL)
    found: Json = yaml.safe_load(re.sub(r"^.*\{\{.*$", "", _complete(text, parts), flags=re.MULTILINE))
    return found


def _complete(text: str, parts: Mapping[str, str]) -> str:
    """Put the shared parts in, and theirs, with the values that a dictionary gives them."""

    def part(match: re.Match[str]) -> str:
        values = dict(_VALUE.findall(match["values"] or ""))
        found = re.sub(
            r"\{\{ \.(\w+) \}\}", lambda name: values.get(name[1], name[0]), parts.get(match["name"], "")
        )
        return _indented(_complete(found, parts), int(match["indent"]))

    return _INCLUDE.sub(part, text)


def _indented(text: str, indent: int) -> str:
    return "\n".join(f"{' ' * indent}{line}" if line.strip() else "" for line in text.splitlines())


def _kind(crd: Json) -> Iterator[str]:
    spec, version = crd["spec"], crd["spec"]["versions"][0]
    named = spec["names"]
    schema = version["schema"]["openAPIV3Schema"]
    short = "".join(f", short `{name}`" for name in named.get("shortNames", ()))
    yield f"## {named['kind']}\n"
    yield f"{schema.get('description', '')}\n".lstrip()
    yield (
        f"`{spec['group']}/{version['name']}`, resource `{named['plural']}`{short}, "
        f"{spec['scope'].lower()}.\n"
    )
    for part in ("spec", "status"):
        fields = schema["properties"].get(part, {})
        if "properties" not in fields:
            continue
        yield f"### {named['kind']}: {part}\n"
        yield from table(("field", "type", "default", "meaning"), _rows(fields, ""))
        if rules := [rule["message"] for rule in fields.get("x-kubernetes-validations", ())]:
            yield "Rules:\n"
            yield from (f"- {cell(rule)}" for rule in rules)
            yield ""


def _rows(schema: Json, path: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each field below a schema, in its order."""
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        default = (
            code(_plain(field["default"])) if "default" in field else "required" if name in required else ""
        )
        yield code(here), cell(_type(field)), default, cell(_meaning(field))
        yield from _below(field, here)


def _below(field: Json, here: str) -> Iterator[tuple[str, str, str, str]]:
    yield from _rows(field, here)
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(inner := field.get(key), Mapping):
            yield from _below(inner, f"{here}{mark}")


def _type(field: Json) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = field.get("type", "any")
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object" and isinstance(values := field.get("additionalProperties"), Mapping):
        return f"map to {_type(values)}"
    return str(kind)


def _meaning(field: Json) -> str:
    said = [str(field["description"]).rstrip(".")] if "description" in field else []
    if choices := field.get("enum"):
        said.append("one of " + ", ".join(f"`{choice}`" for choice in choices if choice is not None))
    said += [text.format(f"{field[key]:,}") for key, text in _BOUNDS if key in field]
    return "; ".join(said)


def _plain(value: Any) -> str:
    return (
        value
        if isinstance(value, str) and value
        else yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()
    )
