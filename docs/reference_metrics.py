"""The reference of metrics: every Counter, Gauge and Histogram that a program defines,
from the code itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_tables import cell, code, table

__all__ = ["Metric", "metrics_in", "metrics_page"]

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {"queue": "queue", "webhook": "webhook", "fluxion": "fluxion", "scheduler_plugin": "scheduler"}
"""Folder -> program."""
_KINDS = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram"}
_HEAD = """# Metrics

Written by `docs/generate.py` from the code. The queue, the webhook and the scheduler serve them over HTTPS on
`/metrics`, for ServiceAccounts in the value `rbac.metricsReadableBy`. A histogram has `_bucket`, `_sum` and
`_count`. Alerts on them are in [incidents](../incidents.md).
"""


@dataclass(frozen=True)
class Metric:
    """A metric as Prometheus sees it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def metrics_page() -> str:
    """Return the page: a section for each program."""
    lines = [_HEAD]
    for folder, program in PROGRAMS.items():
        paths = sorted((ROOT / folder).rglob("*.py"))
        found = sorted(
            (metric for path in paths for metric in metrics_in(path.read_text())),
            key=lambda metric: metric.name,
        )
        if not found:
            continue
        lines += [f"## {program}", ""]
        rows = (
            (code(each.name), each.kind, ", ".join(map(code, each.labels)), cell(each.meaning))
            for each in found
        )
        lines += table(("metric", "kind", "labels", "meaning"), rows)
    return "\n".join(lines).rstrip() + "\n"


def metrics_in(source: str) -> Iterator[Metric]:
    """Yield the metrics that a module defines."""
    tree = ast.parse(source)
    if not any(
        isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prometheus_client")
        for node in ast.walk(tree)
    ):
        return
    for call in ast.walk(tree):
        if not (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id in _KINDS
            and len(call.args) >= 2
        ):
            continue
        name, meaning = (_text(argument) for argument in call.args[:2])
        labels = next(
            (each.value for each in call.keywords if each.arg == "labelnames"),
            call.args[2] if len(call.args) > 2 else None,
        )
        named = tuple(_text(each) for each in labels.elts) if isinstance(labels, ast.List | ast.Tuple) else ()
        suffix = "_total" if call.func.id == "Counter" and not name.endswith("_total") else ""
        yield Metric(f"{name}{suffix}", _KINDS[call.func.id], named, meaning.rstrip("."))


def _text(node: ast.expr) -> str:
    value = ast.literal_eval(node)
    if not isinstance(value, str):
        raise SystemExit(f"a metric's name, help and labels are literal text, not {ast.unparse(node)}")
    return value
