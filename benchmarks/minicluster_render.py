"""Time of rendering MiniClusters: the controller's part on one core, and admission's part for each pod.

The goals are 1,000 MiniClusters of 64 brokers in 10 s, and a certificate in 1 ms.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.miniclusters import MiniCluster, MiniClusterSpec
from fluxqueue.certs.curve import make
from fluxqueue.minicluster.broker import Share
from fluxqueue.minicluster.injection import inject_patch
from fluxqueue.minicluster.pods import pod_template
from fluxqueue.minicluster.render import FluxCluster, objects

SIZE = 64
CLUSTERS = 1_000
RESULTS = Path(__file__).resolve().parent / "results"


def cluster(number: int) -> MiniCluster:
    """Return a MiniCluster of 64 with a sidecar, hooks and volumes."""
    spec = {
        "size": SIZE,
        "maxSize": SIZE + 16,
        "tasks": SIZE * 4,
        "containers": [
            {
                "image": "app:1",
                "runFlux": True,
                "command": "lmp -in in.lj && echo done",
                "commands": {"pre": "module load mpi"},
                "resources": {"limits": {"cpu": "4"}},
            },
            {"name": "web", "image": "nginx", "ports": [80]},
        ],
    }
    meta = ObjectMeta(name=f"sim-{number}", namespace="default", uid=f"uid-{number}")
    return MiniCluster(metadata=meta, spec=msgspec.convert(spec, MiniClusterSpec))


def timed(times: int, work: Callable[[int], object]) -> float:
    """Return the CPU seconds of one call."""
    begun = time.process_time()
    for number in range(times):
        work(number)
    return (time.process_time() - begun) / times


def main() -> int:
    """Measure, print, write JSON."""
    now = dt.datetime.now(dt.UTC)
    shares = [Share(4, 1) if index % 3 else Share(8) for index in range(SIZE)]
    clusters = [cluster(number) for number in range(CLUSTERS)]
    certificate = make("sim", now)
    whole = FluxCluster.of(clusters[0], "queue")
    template = pod_template(whole.identity, whole.spec, whole.injection)["spec"]
    rows = {
        "certificate_ms": timed(2_000, lambda number: make("sim", now)) * 1e3,
        "render_1000_of_64_s": timed(
            CLUSTERS, lambda n: objects(clusters[n], certificate=certificate, image="queue", shares=shares)
        )
        * CLUSTERS,
        "injection_patch_us": timed(
            2_000, lambda number: inject_patch(template, whole.injection, number % SIZE)
        )
        * 1e6,
        "config_map_kib": len(
            msgspec.json.encode(objects(clusters[0], certificate=None, image="queue", shares=shares)[0])
        )
        / 1024,
    }
    for name, value in rows.items():
        print(f"{name:<24}{value:10.3f}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "minicluster_render.json").write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
