"""FluxAccounts of an end-to-end test.
Their names have that of its namespace, since accounts are cluster scoped.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from support.builders import make_account
from support.end_to_end import Stage

from fluxqueue.api.fluxaccounts import FluxAccount

__all__ = ["Accounts"]


class Accounts:
    """FluxAccounts of one test."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._names: list[str] = []

    def name(self, name: str) -> str:
        return f"{name}-{self._stage.namespace}"

    def put(self, name: str, **spec: Any) -> None:
        if "parent" in spec:
            spec["parent"] = self.name(spec["parent"])
        self._names.append(self.name(name))
        self._stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_account(self.name(name), **spec)))

    def change(self, name: str, **spec: Any) -> None:
        self._stage.kubectl(
            "patch", "fluxaccount", self.name(name), "--type=merge", "-p", json.dumps({"spec": spec})
        )

    def status(self, name: str) -> Any:
        text = self._stage.kubectl("get", "fluxaccount", self.name(name), "-o", "json").stdout
        return msgspec.convert(json.loads(text), FluxAccount).status

    def delete(self, *names: str) -> None:
        if unwanted := [*map(self.name, names)] or self._names:
            self._stage.kubectl("delete", "fluxaccount", "--ignore-not-found", *unwanted)
