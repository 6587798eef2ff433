"""`kubectl_complete-fluxqueue`: what can follow on a command line, for kubectl's completion and for the
scripts of `completion`.

kubectl (1.26 and newer) runs this program with the words that were typed, the last one unfinished, and
expects the form of Cobra: a line for each candidate, with a description after a tab, then a line with a colon
and a number that says whether file names may follow.

Commands, options and choices come from the parser of the plugin, so a new option is completed without a
change here. Names are read from the cluster, one page of them. A cluster that cannot be reached, or that
refuses, completes nothing and says nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Final

from fluxqueue.cli.plugin import VERBS, verb_parser
from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["Names", "candidates", "cluster_names", "main"]

Names = Callable[[str, str | None], list[str]]
"""Returns the names of a kind (``workloads``, ``queues``, ``nodes``, ``namespaces``, ``contexts``) in a
namespace."""

FILES: Final = 0
NO_FILES: Final = 4
_TIMEOUT_S = 3.0
_KINDS = {"QUEUE": "queues", "NODE": "nodes"}
_LISTS = ("STATE[,STATE]",)
_FILES = ("FILE", "SCRIPT")


def main() -> int:
    """Print the candidates for the words of the command line."""
    found, directive = candidates(sys.argv[1:] or [""], cluster_names)
    try:
        print("\n".join([*found, f":{directive}"]))
    except BrokenPipeError:
        return 1
    return 0


def candidates(words: Sequence[str], names: Names) -> tuple[list[str], int]:
    """Return what can stand for the last word.

    Parameters
    ----------
    words
        After the name of the program; the last one is unfinished, and may be empty.
    names
        Names of the cluster.

    Returns
    -------
    tuple
        Candidates with descriptions after a tab, and `FILES` if file names may follow.
    """
    *done, typed = [word for word in words[:-1] if word != "="] + ["" if words[-1] == "=" else words[-1]]
    if "--" in done:
        return [], FILES
    command = _command(done)
    if command is None:
        verbs = [f"{name}\t{verb.summary}" for name, verb in VERBS.items()]
        return _starting(verbs, typed), NO_FILES
    parser = verb_parser(command)
    options = {flag: action for action in parser._actions for flag in action.option_strings}
    namespace = _value(done, "-n", "--namespace")
    before = options.get(done[-1]) if done else None
    if before is not None and before.nargs != 0:
        return _values(before, typed, names, namespace)
    flag, equals, part = typed.partition("=")
    if equals and flag in options:
        found, directive = _values(options[flag], part, names, namespace)
        return [f"{flag}={text}" for text in found], directive
    if typed.startswith("-"):
        return _starting([_described(flag, action) for flag, action in options.items()], typed), NO_FILES
    return _positional(parser, command, done, typed, names)


def _command(done: Sequence[str]) -> str | None:
    """Return the command that was typed; the value of an option before it is none."""
    skip = False
    for word in done:
        if not skip and word in VERBS:
            return word
        skip = not skip and word in ("-n", "--namespace", "--context", "--kubeconfig")
    return None


def _positional(
    parser: UsageParser, command: str, done: Sequence[str], typed: str, names: Names
) -> tuple[list[str], int]:
    actions = [action for action in parser._actions if not action.option_strings]
    if not actions:
        return [], NO_FILES
    after = list(done)[list(done).index(command) + 1 :]
    at = sum(not word.startswith("-") for word in after)
    action = actions[min(at, len(actions) - 1)]
    namespace = _value(done, "-n", "--namespace")
    if not action.choices and action.metavar == "NAME":
        return _starting(names("workloads", namespace), typed), NO_FILES
    return _values(action, typed, names, namespace)


def _values(
    action: argparse.Action, typed: str, names: Names, namespace: str | None
) -> tuple[list[str], int]:
    """Return the values of an option or of a positional argument."""
    metavar = str(action.metavar or "")
    if action.choices:
        return _starting([str(each) for each in action.choices], typed), NO_FILES
    if metavar in _FILES or action.dest == "kubeconfig":
        return [], FILES
    if metavar in _LISTS:
        head, comma, part = typed.rpartition(",")
        return [f"{head}{comma}{state}" for state in _starting(_states(action), part)], NO_FILES
    if action.dest in ("namespace", "context"):
        return _starting(names(f"{action.dest}s", None), typed), NO_FILES
    if metavar == "FORM":
        return _starting(["wide", "json", "yaml", "name"], typed), NO_FILES
    kind = _KINDS.get(metavar)
    return (_starting(names(kind, namespace), typed) if kind else []), NO_FILES


def _states(action: argparse.Action) -> list[str]:
    """Return the states that the help of an option lists."""
    return (action.help or "").partition(": ")[2].split(", ")


def _value(words: Sequence[str], *flags: str) -> str | None:
    """Return the value of an option; the last one counts."""
    found = None
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in flags:
            found = value if equals else words[at + 1] if at + 1 < len(words) else found
    return found


def _described(flag: str, action: argparse.Action) -> str:
    return f"{flag}\t{action.help}" if action.help else flag


def _starting(texts: Sequence[str], typed: str) -> list[str]:
    return [text for text in texts if text.startswith(typed)]


def cluster_names(kind: str, namespace: str | None) -> list[str]:
    """Return names of a kind as the cluster of the kubeconfig has them; none if it cannot be asked."""
    from fluxqueue.cli.api_client import ApiClient, ClusterError
    from fluxqueue.cli.completion_names import read_names
    from fluxqueue.kube.kubeconfig import connection, context_names
    from fluxqueue.kube.kubeconfig_files import InvalidKubeconfig

    with contextlib.suppress(ClusterError, InvalidKubeconfig, ValueError):
        if kind == "contexts":
            return context_names()
        chosen = connection(_value(sys.argv, "--kubeconfig"), _value(sys.argv, "--context"))
        with ApiClient(chosen, _TIMEOUT_S) as client:
            return read_names(client, kind, namespace or chosen.namespace)
    return []
