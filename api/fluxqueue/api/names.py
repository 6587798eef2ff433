"""Every name that other programs, people or objects of the cluster see.

One place, because a label that is spelt in two modules is a label that will one day be spelt in two ways. The keys are those of
the Go fluxqueue where it had them; values it kept in labels of 63 characters are annotations here.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "jobs.converged-computing.org"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
FLUXJOBS: Final = "fluxjobs"
FLUXQUEUES: Final = "fluxqueues"

MINICLUSTER_GROUP: Final = "flux-framework.org"
MINICLUSTER_VERSION: Final = "v1alpha2"
MINICLUSTERS: Final = "miniclusters"
OPERATOR_LABEL: Final = "fluxqueue/operator"
OPERATOR: Final = "fluxqueue"
"""On the MiniClusters' CRD: that we serve it, and not the Flux Operator."""

GATE: Final = "fluxqueue"
"""Our scheduling gate. Only this one is ever removed, by name."""

SCHEDULER_NAME: Final = "FluxionScheduler"
FIELD_MANAGER: Final = "fluxqueue"

SEEN_LABEL: Final = "fluxqueue.seen"
SEEN_VALUE: Final = "yes"
MANAGED_LABEL: Final = "fluxqueue/managed"
QUEUE_LABEL: Final = "fluxqueue/queue"
POD_GROUP_LABEL: Final = "fluxqueue/pod-group"
JOBID_LABEL: Final = "fluxqueue/jobid"
PROVISIONS_LABEL: Final = "fluxqueue/provisions"
"""On ProvisioningRequests and their pod templates: uid of the workload they are for."""
SERVICES_OF_LABEL: Final = "fluxqueue/services-of"
"""On the services pod of a MiniCluster: the uid of the Job in whose allocation it has its place."""
UNSCHEDULABLE_LABEL: Final = "fluxqueue/unschedulable"
UNSCHEDULABLE_VALUE: Final = "yes"

DURATION_ANNOTATION: Final = "fluxqueue/duration"
PRIORITY_ANNOTATION: Final = "fluxqueue/priority"
POD_GROUP_SIZE_ANNOTATION: Final = "fluxqueue/pod-group-size"
GANG_ANNOTATION: Final = "fluxqueue/gang"
REPLACE_ANNOTATION: Final = "fluxqueue/replace"
MINICLUSTER_ANNOTATION: Final = "fluxqueue/minicluster"
INJECTION_ANNOTATION: Final = "fluxqueue/minicluster-injection"
"""On the pod template of a MiniCluster's Job: what admission puts into its pods."""
MINICLUSTER_MODE_ANNOTATION: Final = "fluxqueue/minicluster-mode"
MINICLUSTER_TASKS_ANNOTATION: Final = "fluxqueue/minicluster-tasks"
MINICLUSTER_VIEW_ANNOTATION: Final = "fluxqueue/minicluster-view"
SUSPENDED_BY_ANNOTATION: Final = "fluxqueue/suspended-by"
SUSPENDED_BY_WEBHOOK: Final = "webhook"

ALLOCATION_ANNOTATION: Final = "fluxqueue/allocation"
"""Fluxion job id of the allocation, on pin-released templates and every released pod."""

NODES_ANNOTATION: Final = "fluxqueue/fluxion-nodes"
"""RFC 29 hostlist; entry i is the node of rank (completion index) i."""

ACKNOWLEDGED_ANNOTATION: Final = "fluxqueue/acknowledged"
"""On a FluxJob: what of its spec the queue has taken in. What differs from it is a person's edit that is still to be looked at."""

ALLOCATION_KEYS: Final = (ALLOCATION_ANNOTATION, NODES_ANNOTATION, JOBID_LABEL)
"""What only the queue may write; guarded by ValidatingAdmissionPolicies."""

NO_NODE: Final = "none.invalid"
"""Hostlist entry of an index that has no node (finished already): a pod that asks for it is gated."""

COMPLETION_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
CONTROLLER_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"

JOBSET_NAME_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_TOTAL_KEY: Final = "jobset.sigs.k8s.io/global-replicas"
"""Label or annotation on each Job of a JobSet: how many Jobs it has."""

DEFAULT_QUEUE: Final = "default"
DEFAULT_DURATION_S: Final = 3_600
"""Assumed where neither object nor queue says how long."""

JOB_CONTROLLERS: Final = ("system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager")
"""Who may create pods that carry an allocation."""

DAEMONSET_CONTROLLERS: Final = ("system:serviceaccount:kube-system:daemon-set-controller", "system:kube-controller-manager")
NODE_USER_PREFIX: Final = "system:node:"
SYSTEM_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease")
