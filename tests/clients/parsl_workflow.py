"""A workflow of fifty steps in Parsl, as its manual writes one: ten chains of five, on blocks of pods.
Runs in the clients' environment.
"""

from __future__ import annotations

import sys

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import KubernetesProvider

CHAINS, LENGTH = 10, 5


def main(namespace: str, folder: str) -> None:
    """Run the workflow in a namespace, and print what comes of it."""
    size = {"init_cpu": 1, "max_cpu": 2}
    provider = KubernetesProvider(
        namespace=namespace, image="python:3", init_blocks=2, max_blocks=2, pod_name="steps", **size
    )
    executor = HighThroughputExecutor(
        label="pods", address="127.0.0.1", max_workers_per_node=2, provider=provider
    )
    step = parsl.python_app(lambda number: number + 1)
    with parsl.load(Config(executors=[executor], run_dir=folder)):
        chains = [*range(CHAINS)]
        for _ in range(LENGTH):
            chains = [step(each) for each in chains]
        sys.stdout.write(f"sum {sum(each.result() for each in chains)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
