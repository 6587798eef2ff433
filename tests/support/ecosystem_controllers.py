"""Controllers of other projects: where their programs come from, and how each is started.

Each is a Go module of its own below `tests/ecosystem`, whose ``go.mod`` pins the project's version. The
project's manifests, examples and licence are copied next to its program. `support.running_controllers` runs
them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxqueue.local.binaries import are_programs, cached_programs
from fluxqueue.local.go_modules import GoModule
from fluxqueue.local.toolchain import build_tools
from fluxqueue.local.user_folders import cache_folder

__all__ = [
    "ARGO_WORKFLOWS",
    "JOBSET",
    "KARPENTER",
    "KUBERAY",
    "LEADER_WORKER_SET",
    "MPI_OPERATOR",
    "SCHEDULER_PLUGINS",
    "TRAINER",
    "TRAINING_OPERATOR",
    "EcosystemController",
    "Launch",
    "may_build",
]

_MODULES = Path(__file__).parents[1] / "ecosystem"


@dataclass(frozen=True)
class Launch:
    """What a controller is started with.

    Attributes
    ----------
    folder
        Of its files; also its folder for temporary ones.
    webhook_port, health_port
        On this machine.
    """

    folder: Path
    webhook_port: int
    health_port: int

    @property
    def certificates(self) -> Path:
        """With ``tls.crt`` and ``tls.key`` for its webhooks:
        where the library controller-runtime looks, below the temporary folder.
        """
        return self.folder / "k8s-webhook-server" / "serving-certs"


@dataclass(frozen=True)
class EcosystemController:
    """A controller of another project.

    Attributes
    ----------
    name
        The folder of its ``go.mod`` below `tests/ecosystem`.
    title
        The project.
    module, program
        The path of its Go module, and the name of the program that the build leaves.
    minutes
        What the build takes on two cores.
    assets
        Files and folders of its module that are kept with its program, besides its licence.
    manifests
        Kustomizations and files among them that install it; their Deployments are left out.
    account
        Namespace and name of its ServiceAccount.
    resources
        Whose objects say the sizes of its gangs, as in ``gangs.resources`` of the chart.
    arguments
        Its command line.
    examples
        The folder of its example manifests; empty if its module has none.
    has_webhooks
        True if its webhooks are installed.
    fixed_certificates
        Where it waits for certificates, if that cannot be chosen.
    health_port
        Where it says that it is ready, if that cannot be chosen.
    health_path
        Of that answer.
    environment
        More variables.
    needs
        Other controllers that make pods of what it makes.
    queue_config
        Returns more settings of the queue in its cluster.
    """

    name: str
    title: str
    module: str
    program: str
    minutes: int
    assets: tuple[str, ...]
    manifests: tuple[str, ...]
    account: tuple[str, str]
    resources: tuple[str, ...]
    arguments: Callable[[Launch], Sequence[str]]
    examples: str = ""
    has_webhooks: bool = True
    fixed_certificates: Path | None = None
    health_port: int | None = None
    health_path: str = "/readyz"
    environment: tuple[tuple[str, str], ...] = ()
    needs: tuple[EcosystemController, ...] = ()
    queue_config: Callable[[], Mapping[str, Any]] = dict

    @property
    def version(self) -> str:
        """As ``go.mod`` pins it."""
        found = re.search(
            rf"^\s*(?:require )?{re.escape(self.module)} (\S+)",
            (_MODULES / self.name / "go.mod").read_text(),
            re.MULTILINE,
        )
        if found is None:
            raise ValueError(f"tests/ecosystem/{self.name}/go.mod does not require {self.module}: add it")
        return found[1]

    def programs(self, *, build: bool) -> Path | None:
        """Return the folder of its program and assets; None if it is not built and must not be."""
        assets = ("LICENSE", *self.assets)
        module = GoModule(
            self.name,
            f"{self.title} {self.version} (about {self.minutes} minutes on 2 cores, once)",
            source=_MODULES / self.name,
            assets={self.module: assets},
        )
        content = (module.folder / "go.mod").read_bytes() + repr(assets).encode()
        folder = (
            cache_folder()
            / "ecosystem"
            / f"{self.name}-{self.version}-{hashlib.sha256(content).hexdigest()[:8]}"
        )
        if not build and not are_programs(folder, [self.program]):
            return None
        return cached_programs(folder, [self.program], lambda target: build_tools(target, module=module))


def _configured(
    api_version: str, *, certificates: str = "internalCertManagement", names_folder: bool = True
) -> Callable[[Launch], Sequence[str]]:
    """Return the command line of a manager that reads a ``Configuration``, as those of kubernetes-sigs and
    Kubeflow do.

    Parameters
    ----------
    api_version
        Of the Configuration.
    certificates
        Its field about certificates that the manager makes itself.
    names_folder
        True if it can name the folder of certificates.
    """

    def arguments(launch: Launch) -> Sequence[str]:
        configuration: dict[str, Any] = {
            "apiVersion": api_version,
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{launch.health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": launch.webhook_port}
            | ({"certDir": str(launch.certificates)} if names_folder else {}),
            certificates: {"enable": False},
        }
        path = launch.folder / "configuration.json"
        path.write_text(json.dumps(configuration))
        return [f"--config={path}", "--zap-log-level=info"]

    return arguments


JOBSET = EcosystemController(
    name="jobset",
    title="JobSet",
    module="sigs.k8s.io/jobset",
    program="jobset",
    minutes=4,
    assets=("config",),
    manifests=("config/default",),
    account=("jobset-system", "jobset-controller-manager"),
    resources=(),
    arguments=_configured("config.jobset.x-k8s.io/v1alpha1"),
)

KARPENTER = EcosystemController(
    name="karpenter",
    title="Karpenter",
    module="sigs.k8s.io/karpenter",
    program="kwok",
    minutes=4,
    assets=("pkg/apis/crds",),
    manifests=(
        *(f"pkg/apis/crds/karpenter.sh_{name}.yaml" for name in ("nodeclaims", "nodeoverlays", "nodepools")),
        *(str(_MODULES / "karpenter" / f"{name}.yaml") for name in ("node-class", "rights")),
    ),
    account=("karpenter", "karpenter"),
    resources=(),
    arguments=lambda launch: [
        f"--health-probe-port={launch.health_port}",
        "--metrics-port=0",
        "--disable-leader-election",
        f"--instance-types-file-path={_MODULES / 'karpenter' / 'instance-types.json'}",
        "--batch-idle-duration=0.5s",
    ],
    has_webhooks=False,
    health_path="/healthz",
    environment=(("SYSTEM_NAMESPACE", "karpenter"),),
    queue_config=lambda: {
        "nodeShapes": [
            {
                "name": "large",
                "allocatable": {"cpu": "16", "memory": "64Gi"},
                "labels": {"pool": "large"},
                "maxNodes": 4,
            }
        ]
    },
)
"""With its provider for nodes that kwok simulates. Its chart has the rights; here it has all."""

LEADER_WORKER_SET = EcosystemController(
    name="leaderworkerset",
    title="LeaderWorkerSet",
    module="sigs.k8s.io/lws",
    program="cmd",
    minutes=4,
    assets=("config", "docs/examples/sample"),
    manifests=("config/default",),
    account=("lws-system", "lws-controller-manager"),
    resources=("leaderworkersets.leaderworkerset.x-k8s.io",),
    arguments=_configured("config.lws.x-k8s.io/v1alpha1"),
    examples="docs/examples/sample",
)

MPI_OPERATOR = EcosystemController(
    name="mpi-operator",
    title="MPI Operator",
    module="github.com/kubeflow/mpi-operator",
    program="mpi-operator",
    minutes=4,
    assets=("manifests", "examples/v2beta1/pi"),
    manifests=("manifests/base",),
    account=("mpi-operator", "mpi-operator"),
    resources=("mpijobs.kubeflow.org",),
    arguments=lambda _launch: ["--lock-namespace=mpi-operator", "--kube-api-qps=200", "--kube-api-burst=400"],
    examples="examples/v2beta1/pi",
    has_webhooks=False,
    health_port=8080,
    health_path="/healthz",
)

KUBERAY = EcosystemController(
    name="kuberay",
    title="KubeRay",
    module="github.com/ray-project/kuberay/ray-operator",
    program="ray-operator",
    minutes=4,
    assets=("config",),
    manifests=("config/default",),
    account=("ray-system", "kuberay-operator"),
    resources=("rayclusters.ray.io",),
    arguments=lambda launch: [
        f"--health-probe-bind-address=127.0.0.1:{launch.health_port}",
        "--metrics-addr=0",
        "--enable-leader-election=false",
    ],
    examples="config/samples",
    has_webhooks=False,
)

SCHEDULER_PLUGINS = EcosystemController(
    name="scheduler-plugins",
    title="scheduler plugins",
    module="sigs.k8s.io/scheduler-plugins",
    program="controller",
    minutes=4,
    assets=("manifests",),
    manifests=(
        "manifests/install/all-in-one.yaml",
        "manifests/coscheduling/crd.yaml",
        "manifests/capacityscheduling/crd.yaml",
    ),
    account=("scheduler-plugins", "scheduler-plugins-controller"),
    resources=("podgroups.scheduling.x-k8s.io",),
    arguments=lambda launch: [
        f"--probeAddr=127.0.0.1:{launch.health_port}",
        "--metricsAddr=0",
        "--qps=200",
        "--burst=400",
    ],
    has_webhooks=False,
)

TRAINER = EcosystemController(
    name="trainer",
    title="Kubeflow Trainer",
    module="github.com/kubeflow/trainer/v2",
    program="trainer-controller-manager",
    minutes=4,
    assets=("manifests/base",),
    manifests=(
        "manifests/base/crds",
        "manifests/base/rbac",
        "manifests/base/webhook",
        "manifests/base/runtimes",
    ),
    account=("kubeflow-system", "kubeflow-trainer-controller-manager"),
    resources=(),
    arguments=_configured(
        "config.trainer.kubeflow.org/v1alpha1", certificates="certManagement", names_folder=False
    ),
    needs=(JOBSET,),
)

TRAINING_OPERATOR = EcosystemController(
    name="training-operator",
    title="Training Operator",
    module="github.com/kubeflow/training-operator",
    program="training-operator.v1",
    minutes=4,
    assets=("manifests", "examples"),
    manifests=("manifests/overlays/standalone",),
    account=("kubeflow", "training-operator"),
    resources=tuple(
        f"{kind}s.kubeflow.org" for kind in ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")
    ),
    arguments=lambda launch: [
        f"--health-probe-bind-address=127.0.0.1:{launch.health_port}",
        f"--webhook-server-port={launch.webhook_port}",
        "--metrics-bind-address=0",
        "--zap-log-level=info",
    ],
    examples="examples",
    has_webhooks=False,
    fixed_certificates=Path("/tmp/k8s-webhook-server/serving-certs"),
)
"""Its webhooks only validate, and trust only certificates that it makes itself: they are left out."""

ARGO_WORKFLOWS = EcosystemController(
    name="argo-workflows",
    title="Argo Workflows",
    module="github.com/argoproj/argo-workflows/v3",
    program="workflow-controller",
    minutes=6,
    assets=("manifests", "examples/steps.yaml", "examples/dag-diamond.yaml"),
    manifests=("manifests/cluster-install",),
    account=("argo", "argo"),
    resources=(),
    arguments=lambda _launch: ["--executor-image=argoexec", "--qps=200", "--burst=400"],
    examples="examples",
    has_webhooks=False,
    health_port=6060,
    health_path="/healthz",
    environment=(("LEADER_ELECTION_DISABLE", "true"),),
)


def may_build() -> bool:
    """True if a program that is missing is built: ``make test-ecosystem`` says so."""
    return os.environ.get("FLUXQUEUE_ECOSYSTEM") == "build"
