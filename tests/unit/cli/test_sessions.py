import argparse

from fluxqueue.cli.sessions import namespace_of, now
from fluxqueue.kube.kubeconfig import Connection


def test_the_namespace_is_that_of_the_command_line_or_of_the_context() -> None:
    chosen = Connection("https://x", namespace="science")
    assert namespace_of(argparse.Namespace(), chosen) == "science"
    assert namespace_of(argparse.Namespace(namespace="other"), chosen) == "other"


def test_the_time_has_a_zone() -> None:
    assert now().tzinfo is not None
