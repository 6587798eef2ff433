"""All names that other programs, people and objects of the cluster see.

They are defined once, so that no label is spelled in two ways. The keys are those of the Go fluxqueue where
it had them. Values that it kept in labels, which are limited to 63 characters, are annotations here.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "jobs.converged-computing.org"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
FLUXJOBS: Final = "fluxjobs"
FLUXQUEUES: Final = "fluxqueues"
FLUXACCOUNTS: Final = "fluxaccounts"
FLUXRESERVATIONS: Final = "fluxreservations"

MINICLUSTER_GROUP: Final = "flux-framework.org"
MINICLUSTER_VERSION: Final = "v1alpha2"
MINICLUSTERS: Final = "miniclusters"
OPERATOR_LABEL: Final = "fluxqueue/operator"
OPERATOR: Final = "fluxqueue"
"""Value of the label on the CRD of MiniClusters: the queue reconciles them, not the Flux Operator."""

GATE: Final = "fluxqueue"
"""The queue's scheduling gate. The queue removes only this gate, by its name."""

SCHEDULER_NAME: Final = "FluxionScheduler"
"""``spec.schedulerName`` of the pods that the project's own scheduler binds."""
FIELD_MANAGER: Final = "fluxqueue"

OPERATOR_AUDIENCE: Final = "fluxqueue"
"""Audience of the tokens with which operators ask the queue; the API server does not accept them itself."""
OPERATOR_TOKEN_HEADER: Final = "Fluxqueue-Token"  # noqa: S105  # the name of a header
"""Carries such a token, or that of a Flux instance, through the API server's proxy,
which removes ``Authorization``."""
DOCTOR_ANNOTATION: Final = "fluxqueue/doctor"
"""On the queue's pods: the ServiceAccount of their namespace whose tokens `kubectl fluxqueue doctor`
requests."""

HISTORY_ACCOUNT: Final = "fluxqueue-history"
"""The ServiceAccount of a namespace whose tokens open the history of its work; that of the release namespace:
of all work. It is called after the release, so another one is named to the command."""

EXECUTOR_LABEL: Final = "fluxqueue/executor"
"""On the Jobs, pods and Secrets of an executor of the Python client:
which executor (`fluxqueue.client.executor`)."""

SEEN_LABEL: Final = "fluxqueue.seen"
SEEN_VALUE: Final = "yes"
MANAGED_LABEL: Final = "fluxqueue/managed"
QUEUE_LABEL: Final = "fluxqueue/queue"
POD_GROUP_LABEL: Final = "fluxqueue/pod-group"
JOBID_LABEL: Final = "fluxqueue/jobid"
PINNED_LABEL: Final = "fluxqueue/pinned"
PINNED_VALUE: Final = "yes"
"""On a released template that holds the one node of its pods, and so on these: the webhook is not asked about
them. It is not asked about this value only, since the policies count an empty value as none."""
SUSPENDED_BY_QUEUE_LABEL: Final = "fluxqueue/suspended-by-queue"
"""On a JobSet, MPIJob or the like that the queue suspends while its gang is preempted:
the job id of the allocation that is freed."""
PROVISIONS_LABEL: Final = "fluxqueue/provisions"
"""On ProvisioningRequests, their PodTemplates and room pods:
uid of the workload for which they are created."""
ROOM_LABEL: Final = "fluxqueue/room"
"""On the room pods of one workload, which bring nodes for it: the common part of their names."""
ROOM_PORT_PREFIX: Final = "fluxqueue/room-port-"
"""Begins the labels on a room pod that name the host ports of the pod that it stands for."""
ROOM_FOR_ANNOTATION: Final = "fluxqueue/room-for"
"""On a room pod: for which object, for people."""
KEEPS_LABEL: Final = "fluxqueue/keeps-node"
"""On a pod that keeps autoscalers from taking a reserved node away."""
KEPT_NODE_ANNOTATION: Final = "fluxqueue/kept-node"
"""On such a pod: the name of the node."""
ROOM_SCHEDULER: Final = "fluxqueue-rooms"
"""``schedulerName`` of room pods and of pods that keep nodes. Nobody runs a scheduler of this name."""
SERVICES_OF_LABEL: Final = "fluxqueue/services-of"
"""On the services pod of a MiniCluster: the uid of the Job whose allocation it uses."""
UNSCHEDULABLE_LABEL: Final = "fluxqueue/unschedulable"
UNSCHEDULABLE_VALUE: Final = "yes"

DURATION_ANNOTATION: Final = "fluxqueue/duration"
PRIORITY_ANNOTATION: Final = "fluxqueue/priority"
PRIORITY_COUNTS_LABEL: Final = "fluxqueue/priority-counts"
"""``false`` on a PriorityClass: work that names it does not go ahead in the queue."""
POD_GROUP_SIZE_ANNOTATION: Final = "fluxqueue/pod-group-size"
GANG_ANNOTATION: Final = "fluxqueue/gang"
AFTER_ANNOTATION: Final = "fluxqueue/after"
BEGIN_ANNOTATION: Final = "fluxqueue/begin"
SINGLETON_ANNOTATION: Final = "fluxqueue/singleton"
DEADLINE_ANNOTATION: Final = "fluxqueue/deadline"
START_ANNOTATIONS: Final = (AFTER_ANNOTATION, BEGIN_ANNOTATION, SINGLETON_ANNOTATION, DEADLINE_ANNOTATION)
"""What must have happened before a workload may start, and when it has to be done."""
CHECKPOINTED_ANNOTATION: Final = "fluxqueue/checkpointed-at"
"""On a Job: when its work last saved what it has (RFC 3339). Whoever may edit the Job writes it."""
PREEMPT_AT_ANNOTATION: Final = "fluxqueue/preempt-at"
"""On pods of a Job that is preempted: when they get SIGTERM (RFC 3339),
so that they can save what they have before."""
KEEP_IDLE_ANNOTATION: Final = "fluxqueue/keep-idle"
"""``true``: it is not looked whether the work is idle, where the administrator allows that."""
RESERVATION_ANNOTATION: Final = "fluxqueue/reservation"
"""Name of the FluxReservation on whose nodes, and within whose times, the work runs."""
REPLACE_ANNOTATION: Final = "fluxqueue/replace"
MIN_PODS_ANNOTATION: Final = "fluxqueue/min-pods"
"""On an Indexed Job: with how few of its pods the queue may start it;
on pods of a Deployment: with how few it goes on (`fluxqueue.api.moldable`)."""
STARTED_PODS_ANNOTATION: Final = "fluxqueue/started-pods"
"""On a Job that the queue started with fewer pods than it asks for: with how many.
Its parallelism is the queue's, and grows."""
MINICLUSTER_ANNOTATION: Final = "fluxqueue/minicluster"
INJECTION_ANNOTATION: Final = "fluxqueue/minicluster-injection"
"""On the pod template of a MiniCluster's Job: what the webhook injects into its pods."""
MINICLUSTER_MODE_ANNOTATION: Final = "fluxqueue/minicluster-mode"
MINICLUSTER_TASKS_ANNOTATION: Final = "fluxqueue/minicluster-tasks"
MINICLUSTER_VIEW_ANNOTATION: Final = "fluxqueue/minicluster-view"
REQUIRED_TOPOLOGY_ANNOTATION: Final = "fluxqueue/required-topology"
PREFERRED_TOPOLOGY_ANNOTATION: Final = "fluxqueue/preferred-topology"
TOPOLOGY_SLICE_ANNOTATION: Final = "fluxqueue/topology-slice"
EXCLUSIVE_ANNOTATION: Final = "fluxqueue/exclusive"
PODS_PER_NODE_ANNOTATION: Final = "fluxqueue/pods-per-node"
KUEUE_REQUIRED_TOPOLOGY_ANNOTATION: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED_TOPOLOGY_ANNOTATION: Final = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_SLICE_LEVEL_ANNOTATION: Final = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE_ANNOTATION: Final = "kueue.x-k8s.io/podset-slice-size"
TOPOLOGY_KEYS: Final = (
    REQUIRED_TOPOLOGY_ANNOTATION,
    PREFERRED_TOPOLOGY_ANNOTATION,
    TOPOLOGY_SLICE_ANNOTATION,
    EXCLUSIVE_ANNOTATION,
    PODS_PER_NODE_ANNOTATION,
    KUEUE_REQUIRED_TOPOLOGY_ANNOTATION,
    KUEUE_PREFERRED_TOPOLOGY_ANNOTATION,
    KUEUE_SLICE_LEVEL_ANNOTATION,
    KUEUE_SLICE_SIZE_ANNOTATION,
)
"""Annotations about the topology (`fluxqueue.api.topology`), Kueue's included."""
SPEC_DIGEST_ANNOTATION: Final = "fluxqueue/spec-digest"
"""On a MiniCluster's Job: the digest of the spec that it was made from,
so that every edit of the spec is noticed."""
SUSPENDED_BY_ANNOTATION: Final = "fluxqueue/suspended-by"
SUSPENDED_BY_WEBHOOK: Final = "webhook"

SUBMITTED_BY_ANNOTATION: Final = "fluxqueue/submitted-by"
"""User name of who created the object, written at admission; a policy refuses any other."""

ALLOCATION_ANNOTATION: Final = "fluxqueue/allocation"
"""Fluxion job id of the allocation. On templates that are released with pins, and on every released pod."""

NODES_ANNOTATION: Final = "fluxqueue/fluxion-nodes"
"""RFC 29 hostlist; entry i is the node of rank (completion index) i."""

GO_NODES_LABEL: Final = NODES_ANNOTATION
"""The same key as a label, as the Go fluxqueue wrote it: names of nodes joined by ``__``;
entry i is the node of completion index i."""

GANG_SIZE_ANNOTATION: Final = "fluxqueue/gang-size"
"""Next to an allocation: how many of its pods are bound all or none.
Missing if each pod is bound on its own."""

SCHEDULER_LABEL: Final = "fluxqueue/scheduler"
"""A `SchedulerName`. On a Job or pod (label): what shall bind its pods.
On a released template (annotation): what binds them."""

REFUSED_CONDITION: Final = "fluxqueue/refused"
"""Condition of a released pod that the project's scheduler cannot bind:
names allocation and node (`fluxqueue.api.refusals`)."""

PIN_UNTIL_ANNOTATION: Final = "fluxqueue/pin-until"
"""RFC 3339. Pods that are created later are not pinned by the node list next to it
(`fluxqueue.api.pinwindows`)."""

ACKNOWLEDGED_ANNOTATION: Final = "fluxqueue/acknowledged"
"""On a FluxJob: the spec fields that the queue has processed.
A difference is a person's edit that the queue has yet to process."""

ALLOCATION_ANNOTATIONS: Final = (
    ALLOCATION_ANNOTATION,
    NODES_ANNOTATION,
    GANG_SIZE_ANNOTATION,
    PIN_UNTIL_ANNOTATION,
)
ALLOCATION_LABELS: Final = (JOBID_LABEL, PINNED_LABEL)
ALLOCATION_KEYS: Final = (*ALLOCATION_ANNOTATIONS, *ALLOCATION_LABELS)
"""Keys that only the queue may write; ValidatingAdmissionPolicies enforce it."""

MAINTENANCE_ANNOTATION: Final = "fluxqueue/maintenance"
"""On a node: the FluxReservation for whose maintenance the queue cordoned it.
The queue uncordons no other node."""

EXEMPT_ANNOTATION: Final = "fluxqueue/exempt"
"""On a pod template in enforcing mode: controllers may create pods from it outside the queue.
Only exempt users may write it."""

NO_NODE: Final = "none.invalid"
"""Hostlist entry of an index without a node, because it has finished. A pod with that index is gated."""

COMPLETION_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
CONTROLLER_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
JOB_TRACKING_FINALIZER: Final = "batch.kubernetes.io/job-tracking"
JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
JOB_INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"

JOBSET_NAME_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_ROLE_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_TOTAL_KEY: Final = "jobset.sigs.k8s.io/global-replicas"
"""Label or annotation on each Job of a JobSet: how many Jobs the JobSet has."""

DEFAULT_QUEUE: Final = "default"
DEFAULT_DURATION_S: Final = 3_600
"""Duration that is assumed if neither the object nor its queue sets one."""
DEFAULT_GRACE_S: Final = 60
"""How long before its end work is warned, if its queue ends work at the end of its duration and does not say
how long."""

JOB_CONTROLLER: Final = "kubernetes.io/job-controller"
"""``spec.managedBy`` of a Job that the built-in controller reconciles;
it also reconciles Jobs without the field."""

JOB_CONTROLLERS: Final = (
    "system:serviceaccount:kube-system:job-controller",
    "system:kube-controller-manager",
)
"""Users who may create pods that have an allocation."""

DAEMONSET_CONTROLLERS: Final = (
    "system:serviceaccount:kube-system:daemon-set-controller",
    "system:kube-controller-manager",
)
NODE_USER_PREFIX: Final = "system:node:"
SYSTEM_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease")
