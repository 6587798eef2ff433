"""What `docs/security.md` and its pages of reference promise, and the tests that prove it.

A test compares both, so a new paragraph is entered here with its tests.

A part of the page is a paragraph, an item of a list or a row of a table; it is named by how it begins.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["NO_PROMISES", "PROMISES"]

_CHART, _UNIT_CHART = "integration/chart", "unit/chart"
_TRUST, _ENFORCING, _IDENTITY = (
    f"{_CHART}/test_trust.py",
    f"{_CHART}/test_enforcing.py",
    f"{_CHART}/test_queue_identity.py",
)
_INSTALLING, _FLUXJOBS, _POLICIES = (
    f"{_CHART}/test_installing.py",
    f"{_CHART}/test_fluxjobs.py",
    f"{_CHART}/test_allocation_policies.py",
)
_SCHEDULER, _SUBMITTERS, _REVIEWED = (
    f"{_CHART}/test_scheduler.py",
    f"{_CHART}/test_submitters.py",
    f"{_CHART}/test_reviewed_requests.py",
)
_NETWORK, _RBAC, _SHARED = (
    f"{_UNIT_CHART}/test_network.py",
    f"{_UNIT_CHART}/test_rbac.py",
    f"{_UNIT_CHART}/test_shared_values.py",
)
_RIGHTS, _SHARED_CLUSTER, _LEFT = "e2e/test_rights.py", "e2e/test_shared_cluster.py", "e2e/test_enforcing.py"
_ADMIN, _ACCESS, _HISTORY = (
    f"unit/queue/admin/test_{name}.py" for name in ("admin_server", "access", "history_endpoints")
)
_HEALTH, _CONNECTIONS, _SERVER = (
    f"unit/serving/test_{name}.py" for name in ("health", "connections", "guarded_server")
)
_ADOPTING, _PODS, _CACHES = (
    "integration/queue/test_adopting.py",
    "unit/queue/cluster/test_pods_of_jobs.py",
    "unit/queue/cluster/test_caches.py",
)
_EXEMPTIONS, _NAMES, _WEB_JOBS = (
    f"unit/webhook/test_{name}.py" for name in ("exemptions", "submitters", "jobs")
)
_LIMITS, _OWNERS, _DASHBOARD = (
    "integration/webhook/test_limits.py",
    "e2e/test_preempt_owners.py",
    "integration/dashboard/test_dashboard.py",
)
_PROXY, _HOSTILE, _DECODING = (
    "integration/dashboard/test_proxy.py",
    "e2e/test_hostile.py",
    "unit/kube/test_decoding.py",
)

NO_PROMISES = (
    "fluxqueue runs in clusters that several teams share",
    "How to report a fault",
    "| who | has |",
    "Trusted are: the API server",
    "| identity | may |",
    "| identity | is trusted for |",
    "| administrators |",
    "| you want to know |",
    "| of | the queue changes |",
    "What each program of fluxqueue may do",
    "What happens when a person writes",
    "What it creates and changes of Jobs and Pods is judged",
    "Each row was tried as that identity",
    "| what a program may do,",
    "| what happens when a person writes",
    "| how claims of others' allocations are judged",
    "| port | serves |",
    "| setting | default |",
    "An upgrade changes no FluxQueue",
    "The allocation keys are the annotations",
    "| a person writes |",
    "| way out |",
    "- People of one namespace trust each other",
    "- Whoever can write the status of Pods",
    "- The policies are part of the chart",
    "- `/metrics` and `/readyz` of the webhook",
    "- The API server's proxy does not verify",
    "- The Events that the queue writes",
    "Not tried: the NetworkPolicies",
)
"""What nothing is promised in: headings of tables, who is trusted, and what is not guarded."""

PROMISES: Mapping[str, tuple[str, ...]] = {
    "| a person of a namespace |": (
        f"{_TRUST}::test_objects_with_an_allocation_cannot_be_created_or_applied",
        f"{_TRUST}::test_the_role_edit_does_not_reach",
        f"{_SHARED_CLUSTER}::test_a_person_leaves_no_queue_and_works_in_the_own_namespace_alone",
    ),
    "| a pod in the cluster |": (
        f"{_ACCESS}::test_who_is_let_in",
        f"{_SERVER}::test_silent_connections_do_not_keep_a_caller_out",
        f"{_NETWORK}::test_every_other_port_is_reached_from_where_it_is_called",
    ),
    "| who stole a token of a program of ours |": (
        f"{_IDENTITY}::test_of_a_job_it_changes_whether_it_runs_and_marks_of_its_own",
        f"{_RBAC}::test_the_queue_reads_no_secret_but_its_certificate_s",
    ),
    "| the author of a MiniCluster |": (
        "unit/minicluster/test_hostile_specs.py::test_hostile_specs_are_refused_or_rendered",
        "unit/queue/miniclusters/test_owned_objects.py::test_an_object_that_the_queue_did_not_create_is_left_alone",
    ),
    "| who can send HTTP to the webhook |": (
        f"{_LIMITS}::test_more_silent_connections_than_open_files_keep_nobody_out",
        f"{_LIMITS}::test_unfinished_bodies_together_hold_a_limited_number_of_bytes",
    ),
    "The release namespace, `kube-system`": (
        f"{_REVIEWED}::test_other_namespaces_are_not_whatever_their_labels",
        f"{_EXEMPTIONS}::test_the_release_namespace_is_left_alone_when_configured",
    ),
    "Every program has its own ServiceAccount": (
        f"{_RBAC}::test_every_program_has_an_identity_of_its_own",
        f"{_RIGHTS}::test_every_right_is_used_and_none_is_missed",
    ),
    "| webhook | list FluxQueues": (
        f"{_INSTALLING}::test_the_webhook_has_no_rights",
        f"{_RBAC}::test_the_webhook_lists_queues_and_the_database_has_no_rights_and_no_token",
        f"{_UNIT_CHART}/test_scheduler.py::test_the_webhook_reads_namespaces_only_with_a_scheduler_of_ours",
    ),
    "| queue | patch Jobs and Pods": (
        f"{_INSTALLING}::test_the_queue_has_its_rights_and_no_more",
        f"{_RBAC}::test_the_queue_changes_only_what_it_must",
        f"{_IDENTITY}::test_it_cordons_and_uncordons_nodes_with_its_mark_and_changes_nothing_else",
        f"{_IDENTITY}::test_in_a_namespace_that_is_not_managed_it_touches_only_what_it_holds",
    ),
    "| queue, with `queue.config.nodeShapes` |": (
        f"{_IDENTITY}::test_it_creates_room_pods_in_its_own_namespace",
        f"{_IDENTITY}::test_it_writes_the_status_of_room_pods_and_deletes_them",
    ),
    "| queue, with MiniClusters |": (
        f"{_RBAC}::test_for_miniclusters_the_queue_makes_their_objects_and_no_others",
        f"{_RBAC}::test_the_objects_of_miniclusters_are_made_in_chosen_namespaces",
        f"{_RBAC}::test_without_miniclusters_there_is_no_right_for_them",
        f"{_IDENTITY}::test_it_creates_objects_of_flux_clusters_in_managed_namespaces",
    ),
    "| scheduler | bind Pods": (
        f"{_SCHEDULER}::test_it_has_exactly_these_rights",
        f"{_SCHEDULER}::test_it_binds_a_pod_only_as_it_has_seen_it",
        f"{_SCHEDULER}::test_it_reports_nothing_about_pods_of_other_schedulers",
        f"{_SCHEDULER}::test_of_a_claim_it_writes_the_selected_node_alone",
    ),
    "| Postgres, backup |": (
        f"{_RBAC}::test_the_webhook_lists_queues_and_the_database_has_no_rights_and_no_token",
        f"{_NETWORK}::test_postgres_is_reached_by_the_queue_and_its_backup_alone",
    ),
    "| `fluxqueue-doctor`, `-doctor-repair` |": (
        f"{_RBAC}::test_people_reach_the_doctor_by_a_token_of_an_account_that_may_nothing_else",
        f"{_INSTALLING}::test_a_token_that_people_request_for_the_queue_opens_nothing_else",
    ),
    "| people with the Roles of the same names |": (
        f"{_RIGHTS}::test_who_may_reaches_the_doctor_through_the_api_server_and_others_read_how",
    ),
    "| dashboard, if it is installed |": (
        f"{_DASHBOARD}::test_people_see_the_work_of_namespaces_that_they_may_list",
        f"{_PROXY}::test_for_whom_it_may_not_act_nothing_is_done",
        f"{_UNIT_CHART}/test_dashboard.py::test_it_only_looks_and_asks_who_somebody_is",
    ),
    "| `fluxqueue-history`, in the release namespace": (
        f"{_RBAC}::test_people_reach_the_history_by_a_token_of_an_account_that_may_list_fluxjobs_only",
    ),
    "| the groups in `rbac.historyReachableBy`": (
        f"{_RBAC}::test_who_reaches_the_history_and_which_namespaces_have_it_is_configured",
    ),
    "| people with `<fullname>-operator` |": (
        f"{_RBAC}::test_only_operators_write_queues_and_accounts",
        f"{_FLUXJOBS}::test_queues_are_made_by_operators_only",
        f"{_FLUXJOBS}::test_people_neither_make_nor_delete_fluxjobs",
    ),
    "| a Job | `suspend`, `parallelism`": (
        f"{_IDENTITY}::test_of_a_job_it_changes_whether_it_runs_and_marks_of_its_own",
        f"{_IDENTITY}::test_it_ends_a_job_that_it_has_placed_and_gives_it_no_more_time",
        f"{_IDENTITY}::test_of_the_status_of_a_job_it_changes_the_start_time",
    ),
    "| a template and a pod |": (
        f"{_IDENTITY}::test_of_a_pod_it_changes_where_it_runs_and_marks_of_its_own",
    ),
    "| a Job, a template and a pod |": (
        f"{_IDENTITY}::test_of_a_job_it_changes_whether_it_runs_and_marks_of_its_own",
        f"{_IDENTITY}::test_of_a_pod_it_changes_where_it_runs_and_marks_of_its_own",
    ),
    "| JobSets, TrainJobs, MPIJobs": (
        f"{_OWNERS}::test_the_queue_suspends_and_resumes_owners_and_changes_nothing_else",
    ),
    "- **It deletes** pods": (
        f"{_IDENTITY}::test_it_deletes_pods_that_it_holds_and_no_jobs_of_people",
        f"{_IDENTITY}::test_it_cannot_mark_a_pod_as_its_own_to_delete_it_afterwards",
    ),
    "- **It evicts** pods": (f"{_IDENTITY}::test_it_evicts_pods_in_managed_namespaces",),
    "- **It creates** objects": (
        f"{_IDENTITY}::test_it_creates_objects_of_flux_clusters_in_managed_namespaces",
    ),
    "- **Room pods**": (
        f"{_IDENTITY}::test_it_creates_room_pods_in_its_own_namespace",
        f"{_IDENTITY}::test_it_writes_the_status_of_room_pods_and_deletes_them",
    ),
    "- **In a namespace that is not managed**": (
        f"{_IDENTITY}::test_in_a_namespace_that_is_not_managed_it_touches_only_what_it_holds",
    ),
    "The queue can read those of the certificates": (
        f"{_RBAC}::test_the_queue_reads_no_secret_but_its_certificate_s",
        f"{_RBAC}::test_with_cert_manager_the_queue_has_no_right_on_certificates",
        "unit/queue/miniclusters/test_owned_objects.py::test_a_secret_that_exists_is_this_owners_and_is_never_read",
    ),
    "| the queue's ServiceAccount | allocation keys": (
        f"{_TRUST}::test_not_even_the_queue_creates_an_object_with_an_allocation",
    ),
    "| the scheduler's ServiceAccount, if it is installed |": (
        f"{_SCHEDULER}::test_it_reports_by_conditions_and_changes_nothing_else_of_a_pod",
        f"{_SCHEDULER}::test_it_reports_nothing_about_pods_of_other_schedulers",
    ),
    "| `webhook.jobControllers` |": (
        f"{_POLICIES}::test_only_the_creation_of_pods_is_the_job_controller_s",
        f"{_TRUST}::test_a_controller_manager_of_one_identity_hands_on_allocations_of_jobs_alone",
    ),
    "| `webhook.daemonSetControllers`, nodes |": (
        f"{_REVIEWED}::test_pods_of_a_daemonset_are_not",
        f"{_REVIEWED}::test_a_node_s_mirror_pods_are_not",
    ),
    "| queue, scheduler, webhook and dashboard, `health`": (
        f"{_HEALTH}::test_a_program_that_is_not_ready_says_so",
        "unit/queue/test_health.py::test_readiness_tells_any_pod_only_the_names_of_what_is_missing",
    ),
    "| queue and scheduler, `metrics`, HTTPS |": (
        f"{_ACCESS}::test_user_and_right_are_asked_of_the_api_server",
        f"{_RBAC}::test_metrics_are_for_configured_accounts",
    ),
    "| the same | `/status`": (
        f"{_ADMIN}::test_status_has_sentences_and_wants_a_token_for_fluxqueue",
        f"{_ACCESS}::test_a_token_for_another_audience_is_refused_although_it_is_valid",
    ),
    "| the same, of the queue | `/history`": (
        f"{_HISTORY}::test_the_right_is_that_to_list_fluxjobs_there",
        f"{_ACCESS}::test_the_answer_for_one_namespace_is_not_that_for_another",
    ),
    "| queue, Fluxion's gRPC |": (
        f"{_UNIT_CHART}/test_workloads.py::test_the_queue_connects_to_the_matcher_in_its_pod",
    ),
    "| dashboard, HTTPS |": (
        f"{_DASHBOARD}::test_nothing_is_shown_before_somebody_signs_in",
        f"{_PROXY}::test_headers_of_anybody_else_open_nothing",
        f"{_DASHBOARD}::test_a_probe_needs_no_session",
    ),
    "| webhook, HTTPS |": (
        f"{_NETWORK}::test_while_the_api_server_s_addresses_are_unknown_only_what_it_calls_is_open",
    ),
    "| Postgres | SQL |": (f"{_NETWORK}::test_postgres_is_reached_by_the_queue_and_its_backup_alone",),
    "The metrics port asks the API server": (
        f"{_ACCESS}::test_answers_are_kept_for_seconds_only",
        f"{_ACCESS}::test_the_table_of_answers_is_bounded",
        f"{_ACCESS}::test_wrong_tokens_cost_few_reviews",
        f"{_ACCESS}::test_many_addresses_together_cost_a_bounded_number_of_reviews",
        f"{_ACCESS}::test_a_flood_of_wrong_tokens_refuses_no_scrape_of_a_known_caller",
        f"{_ACCESS}::test_an_api_server_that_does_not_answer_lets_nobody_in_and_is_asked_again",
        f"{_ADMIN}::test_a_body_is_refused_before_anything_is_asked",
        f"{_SERVER}::test_a_connection_carries_one_request_where_the_limits_say_so",
    ),
    "All ports but Fluxion's and Postgres'": (
        f"{_SERVER}::test_a_silent_connection_costs_no_tls",
        f"{_SERVER}::test_a_head_that_never_ends_is_cut_off",
        f"{_SERVER}::test_connections_leave_a_reserve_of_open_files",
        f"{_CONNECTIONS}::test_each_stage_has_its_deadline",
        f"{_CONNECTIONS}::test_of_one_address_those_never_answered_end_first_and_the_oldest_of_them",
        f"{_HEALTH}::test_silent_connections_keep_no_probe_out",
        f"{_HEALTH}::test_a_stuck_main_loop_is_not_alive_until_it_answers_again",
    ),
    "`kubectl fluxqueue doctor` needs the Role": (
        f"{_RIGHTS}::test_who_may_reaches_the_doctor_through_the_api_server_and_others_read_how",
    ),
    "`kubectl fluxqueue history` and `report` need": (
        f"{_RBAC}::test_people_reach_the_history_by_a_token_of_an_account_that_may_list_fluxjobs_only",
        f"{_HISTORY}::test_the_right_is_that_to_list_fluxjobs_there",
    ),
    "Both go through the API server's proxy": (
        f"{_NETWORK}::test_while_the_api_server_s_addresses_are_unknown_only_what_it_calls_is_open",
        f"{_RIGHTS}::test_who_may_reaches_the_doctor_through_the_api_server_and_others_read_how",
    ),
    "The chart's defaults suit one group": (
        f"{_SHARED}::test_an_installation_names_each_setting_that_is_open",
        f"{_SHARED}::test_each_setting_that_is_opened_is_named",
        f"{_INSTALLING}::test_the_values_of_a_shared_cluster_are_accepted_and_name_what_only_the_site_knows",
    ),
    "| `enforcement.mode` |": (
        f"{_SHARED}::test_in_a_shared_cluster_only_exempt_identities_take_work_out_of_the_queue",
    ),
    "| `networkPolicy.enabled` |": (
        f"{_NETWORK}::test_metrics_are_reached_by_nobody_unless_somebody_is_named",
        f"{_NETWORK}::test_every_pod_of_the_chart_has_a_policy",
    ),
    "| `networkPolicy.apiServerCIDRs` |": (
        f"{_SHARED}::test_in_a_shared_cluster_no_port_is_open_to_everybody",
    ),
    "| `networkPolicy.dashboardFrom` |": (
        f"{_SHARED}::test_in_a_shared_cluster_no_port_is_open_to_everybody",
    ),
    "| `rbac.queuesReadableBy` |": (
        f"{_SHARED}::test_in_a_shared_cluster_nothing_is_readable_by_everybody",
        f"{_RBAC}::test_queues_are_readable_by_everyone_or_by_configured_subjects",
    ),
    "| `rbac.historyReachableBy` |": (
        f"{_SHARED}::test_in_a_shared_cluster_nothing_is_readable_by_everybody",
    ),
    "| `defaultQueue.spec.maxPriority` |": (f"{_SHARED_CLUSTER}::test_nobody_goes_ahead_of_others",),
    "| `defaultQueue.spec.enforceDuration` |": (f"{_SHARED_CLUSTER}::test_a_stated_duration_is_kept",),
    "| `defaultQueue.spec.limits.perNamespace` |": (
        f"{_SHARED}::test_in_a_shared_cluster_the_default_queue_bounds_every_namespace",
        f"{_FLUXJOBS}::test_the_default_queue_of_a_shared_cluster_is_accepted",
    ),
    "| `webhook.failurePolicy` |": (
        "e2e/test_failures.py::test_without_a_webhook_only_unmanaged_namespaces_accept_jobs",
    ),
    "| `miniclusters.namespaces` |": (
        f"{_RBAC}::test_the_objects_of_miniclusters_are_made_in_chosen_namespaces",
    ),
    "| an allocation key on a new Job": (
        f"{_TRUST}::test_objects_with_an_allocation_cannot_be_created_or_applied",
        f"{_POLICIES}::test_an_allocation_cannot_be_forged_even_by_an_administrator",
        f"{_WEB_JOBS}::test_the_refusal_names_every_forged_key",
    ),
    "| one on an object that exists": (
        f"{_TRUST}::test_an_allocation_cannot_be_added_to_an_existing_object",
        f"{_TRUST}::test_what_the_queue_has_written_is_neither_changed_nor_removed_not_even_through_the_status",
    ),
    "| the label `fluxqueue/pinned": (f"{_TRUST}::test_nobody_keeps_the_webhook_from_a_pod_by_its_label",),
    "| one in the template of a Deployment": (
        f"{_TRUST}::test_pods_get_no_allocation_by_their_deployment_s_template",
    ),
    "| one in a Binding": (f"{_TRUST}::test_a_binding_adds_no_allocation_to_its_pod",),
    "| one in `jobLabels`": (
        "unit/minicluster/test_reserved.py::test_what_belongs_to_the_queue_is_refused_with_its_field",
    ),
    "| another user name in `fluxqueue/submitted-by`": (
        f"{_NAMES}::test_a_name_in_a_manifest_is_overwritten",
        f"{_SUBMITTERS}::test_an_object_is_created_with_the_own_name_or_none",
        f"{_SUBMITTERS}::test_a_name_is_neither_changed_nor_added_later_but_may_be_left_out",
        f"{_SUBMITTERS}::test_a_binding_names_nobody",
        f"{_SUBMITTERS}::test_a_minicluster_names_nobody_else_since_its_job_inherits_the_name",
    ),
    "| that annotation in the template of a Deployment or CronJob": (
        f"{_NAMES}::test_pods_of_other_controllers_name_the_controller_and_not_what_a_template_says",
    ),
    "| `suspend: false` on a Job with an allocation": (
        f"{_POLICIES}::test_an_owner_may_stop_a_released_job_but_not_resume_it_with_the_old_allocation",
        f"{_POLICIES}::test_an_owner_cannot_remove_the_allocation_and_unsuspend",
    ),
    "| `suspend: false` on a Job without one": (
        f"{_POLICIES}::test_a_job_without_an_allocation_is_its_owner_s_to_resume",
        "e2e/test_failures.py::test_the_pods_of_a_queued_job_resumed_by_its_user_are_gated_until_its_release",
    ),
    "| a higher `parallelism` on a released Job": (
        f"{_POLICIES}::test_a_pinned_job_of_one_pod_is_suspended_before_it_grows",
        f"{_POLICIES}::test_a_job_whose_template_holds_its_node_does_not_become_elastic_by_fewer_completions",
    ),
    "| removal of our gate from a pod": (
        f"{_TRUST}::test_our_gate_is_not_removed_by_people",
        f"{_POLICIES}::test_our_gate_is_removed_by_the_queue_alone_and_foreign_gates_by_anyone",
    ),
    "| removal of keys, or of our gate, in a namespace": (
        f"{_TRUST}::test_our_keys_in_an_unmanaged_namespace_may_be_removed_but_not_changed",
    ),
    "| a Binding of a gated pod": (f"{_TRUST}::test_a_gated_pod_is_not_bound_whatever_scheduler_it_names",),
    "| a Binding of a pod of `FluxionScheduler`": (f"{_TRUST}::test_the_role_edit_does_not_reach",),
    "| label or annotation `fluxqueue/scheduler`": (
        "integration/scheduler_plugin/test_binding.py::test_a_held_pod_is_left_alone_until_it_has_a_node",
    ),
    "| `pods/resize`, `pods/ephemeralcontainers`": (
        f"{_TRUST}::test_subresources_that_change_a_running_pod_leave_keys_and_gate_alone",
        f"{_TRUST}::test_the_role_edit_does_not_reach",
    ),
    "| a running Job or a Pod that claims an allocation": (
        f"{_ADOPTING}::test_a_forged_running_job_is_not_adopted_by_a_new_leader",
    ),
    "| an ownerReference to a Job of another namespace": (
        f"{_PODS}::test_a_pod_of_another_namespace_does_not_belong_to_the_job_it_names",
    ),
    "| the label `fluxqueue/services-of`": (
        f"{_PODS}::test_a_services_pod_of_another_owner_does_not_belong_to_the_job",
        f"{_PODS}::test_a_minicluster_has_no_services_pods_in_another_namespace",
    ),
    "| a FluxJob, or anything in one but": (
        f"{_FLUXJOBS}::test_people_neither_make_nor_delete_fluxjobs",
        f"{_FLUXJOBS}::test_the_rest_of_the_spec_is_refused_by_field_also_to_an_administrator",
        f"{_FLUXJOBS}::test_the_status_is_the_queue_s",
    ),
    "| a finalizer or another owner on a FluxJob": (
        f"{_TRUST}::test_the_metadata_of_a_fluxjob_that_the_queue_reads_is_its_own",
        f"{_TRUST}::test_the_rest_of_a_fluxjob_s_metadata_is_theirs",
    ),
    "| removal of the owner of a FluxJob": (
        f"{_TRUST}::test_garbage_collection_may_remove_owners_of_a_fluxjob",
    ),
    "| an Event `FailedCreate` about a Job": (
        "unit/queue/requeue/test_startup_monitor.py::test_only_the_job_controllers_events_about_this_very_job_are_believed",
    ),
    "| control characters, or any length of text": (
        f"{_DECODING}::test_control_characters_of_what_is_stored_or_shown_become_pictures",
        f"{_HOSTILE}::test_hostile_objects_of_one_user_stop_neither_the_leader_nor_anybody_elses_work",
    ),
    "| the status of a Job or Pod": (f"{_TRUST}::test_the_role_edit_does_not_reach",),
    "| a queue of another namespace, or a priority": (
        f"{_SHARED_CLUSTER}::test_nobody_goes_ahead_of_others",
        "unit/queue/intake/test_describe.py::test_a_priority_class_counts_up_to_what_the_queue_allows",
    ),
    "| a PriorityClass of the system": (
        f"{_CACHES}::test_no_class_of_the_system_or_of_programs_counts_in_the_queue",
    ),
    "| a duration that it will not keep": (f"{_SHARED_CLUSTER}::test_a_stated_duration_is_kept",),
    "After a restore, or when another": (
        f"{_ADOPTING}::test_a_job_that_the_queue_released_is_adopted",
        f"{_ADOPTING}::test_a_job_that_copies_the_keys_of_another_is_not_adopted",
        f"{_ADOPTING}::test_pods_that_the_queue_admitted_are_adopted_if_they_are_bound",
    ),
    "What the queue writes into the FluxJobs, Events": (
        f"{_SHARED_CLUSTER}::test_nobody_reads_the_names_of_others_work",
        f"{_DASHBOARD}::test_a_job_of_another_tenant_looks_like_one_that_is_not_there",
    ),
    "By default the queue is voluntary": (
        f"{_REVIEWED}::test_what_opts_out_is_not",
        f"{_LEFT}::test_queued_work_runs_and_nothing_bypasses_the_queue",
        f"{_ENFORCING}::test_warnings_replace_refusals_in_the_warn_mode",
    ),
    "| `spec.nodeName` in a Pod or pod template": (f"{_ENFORCING}::test_a_pod_does_not_leave_the_queue",),
    "| label `fluxqueue/managed": (
        f"{_ENFORCING}::test_a_job_does_not_leave_the_queue_by_a_label_of_its_own",
        f"{_ENFORCING}::test_a_queued_job_is_not_taken_out_by_an_edit",
        f"{_EXEMPTIONS}::test_a_pod_that_a_later_webhook_takes_out_of_the_queue_loses_our_gate",
    ),
    "| label `kueue.x-k8s.io/queue-name` there": (
        f"{_ENFORCING}::test_a_job_does_not_leave_the_queue_by_a_label_of_its_own",
    ),
    "| `spec.managedBy` of a Job or CronJob": (
        f"{_ENFORCING}::test_a_job_does_not_leave_the_queue_by_another_controller",
    ),
    "| a Pod that claims to belong to a DaemonSet": (
        f"{_ENFORCING}::test_a_pod_does_not_leave_the_queue",
        f"{_EXEMPTIONS}::test_is_not_left_alone",
    ),
    "| a DaemonSet | runs on its nodes": (
        f"{_ENFORCING}::test_only_exempt_users_run_daemonsets_outside_the_queue",
    ),
    "| `schedulerName` of another scheduler": (
        f"{_TRUST}::test_a_gated_pod_is_not_bound_whatever_scheduler_it_names",
    ),
    "| the webhook unavailable with `failurePolicy: Ignore`": (
        f"{_ENFORCING}::test_a_pod_that_the_webhook_did_not_see_is_refused_while_that_is_away",
        f"{_LEFT}::test_new_work_starts_without_a_webhook_by_the_commands_of_the_runbook",
    ),
    "| a pod enlarged in place": (f"{_ENFORCING}::test_a_pod_does_not_outgrow_its_slot_by_a_resize",),
    "| a higher `replicas` of an object": (
        f"{_ENFORCING}::test_objects_of_exempt_users_may_be_deleted_but_not_changed_by_others",
    ),
    "| pods of controllers outside Kubernetes": (
        f"{_ENFORCING}::test_pods_of_stock_controllers_are_checked_like_others",
    ),
    "| a namespace that is not managed": (
        f"{_REVIEWED}::test_other_namespaces_are_not_whatever_their_labels",
    ),
    "A refusal names the object": (f"{_ENFORCING}::test_a_template_is_refused_where_its_writer_sees_it",),
    "**Who is exempt**": (
        f"{_ENFORCING}::test_groups_and_service_accounts_are_exempt_too",
        f"{_ENFORCING}::test_controllers_create_pods_outside_the_queue_only_from_exempt_templates",
        f"{_ENFORCING}::test_objects_of_exempt_users_may_be_deleted_but_not_changed_by_others",
    ),
    "- Work that a controller creates": (
        f"{_NAMES}::test_pods_of_other_controllers_name_the_controller_and_not_what_a_template_says",
    ),
    "- Health ports answer on every interface": (f"{_HEALTH}::test_silent_connections_keep_no_probe_out",),
    "`kubectl fluxqueue doctor` was tried": (
        f"{_RIGHTS}::test_who_may_reaches_the_doctor_through_the_api_server_and_others_read_how",
    ),
}
