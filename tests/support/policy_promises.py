"""What the pages on policies promise, and the tests that prove it.

A test compares both, so a new paragraph is entered here with its tests, and a new page in `PAGES`.

A part of a page is a paragraph, an item of a list or a row of a table; it is named by how it begins.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["NO_PROMISES", "PAGES", "PROMISES"]

PAGES = (
    "policies.md",
    "priorities.md",
    "limits.md",
    "preemption.md",
    "consolidation.md",
    "flavors.md",
    "elastic.md",
    "shrinking.md",
    "estimates.md",
    "simulator.md",
    "reference/invalid-input.md",
)
"""Below `docs/`."""

_SCHEDULING, _INTEGRATION, _E2E = "unit/queue/scheduling", "integration/queue", "e2e"
_REQUEUE, _KINDS = "unit/queue/requeue", "e2e/test_preempt_kinds.py"
_GROUPS = f"{_REQUEUE}/test_preempted_groups.py"
_FCFS, _ROUNDS = f"{_SCHEDULING}/policies/test_fcfs_pass.py", f"{_SCHEDULING}/policies/test_rounds.py"
_PREDICTIONS = f"{_SCHEDULING}/policies/test_predictions.py"
_CYCLES, _ESTIMATES = f"{_SCHEDULING}/test_scheduler.py", f"{_SCHEDULING}/reservations/test_estimates.py"
_GROWTH, _PREEMPTION = f"{_SCHEDULING}/test_growth.py", f"{_SCHEDULING}/preemption/test_preemptor.py"
_WHY_NOT, _WORLDS = f"{_SCHEDULING}/preemption/test_why_not.py", f"{_SCHEDULING}/test_preemption_worlds.py"
_VICTIMS, _POSSIBLE = (
    f"{_SCHEDULING}/policies/test_victims.py",
    f"{_SCHEDULING}/preemption/test_possible_victims.py",
)
_LIMITS, _QUOTAS = f"{_SCHEDULING}/limits/test_quotas.py", f"{_SCHEDULING}/limits/test_namespace_quotas.py"
_SCOPES, _STOPS = f"{_SCHEDULING}/limits/test_work_scopes.py", f"{_SCHEDULING}/limits/test_limit_stops.py"
_ACCOUNT_LIMITS = f"{_INTEGRATION}/test_account_limits.py"
_PRIORITIES, _SUMS = f"{_SCHEDULING}/test_priority_keeper.py", f"{_SCHEDULING}/test_added_priorities.py"
_HISTORY = f"{_SCHEDULING}/policies/test_estimate_history.py"
_RESERVATIONS, _PREEMPTING = f"{_INTEGRATION}/test_reservations.py", f"{_INTEGRATION}/test_preempting.py"
_QUEUE_LIMITS, _BUDGETS = (
    f"{_INTEGRATION}/test_queue_limits.py",
    "unit/queue/intake/test_namespace_budgets.py",
)
_DESCRIBE, _MIN_PODS = "unit/queue/intake/test_describe.py", "unit/queue/intake/test_min_pods_resolver.py"
_MOLDABLE, _RESIZER = "unit/queue/model/test_moldable.py", "unit/queue/release/test_job_resizer.py"
_SIMULATOR, _FORECASTS = "unit/queue/simulator/test_simulator.py", "unit/queue/simulator/test_forecasts.py"
_SHARES = "unit/queue/simulator/test_simulated_shares.py"
_STATUS, _REVIEWS = "unit/queue/status/test_fluxjob_status.py", "unit/webhook/test_validation.py"
_PLANS, _EDITS, _BAD = f"{_E2E}/test_better_plans.py", f"{_E2E}/test_edits.py", f"{_E2E}/test_bad_input.py"
_SMALLER, _GRACE = f"{_E2E}/test_moldable_jobs.py", f"{_E2E}/test_preemption.py"
_SHRINKING, _SHRUNK = f"{_SCHEDULING}/test_shrinking.py", f"{_E2E}/test_shrinking.py"
_FLOORS, _LAST = f"{_SCHEDULING}/test_floors.py", f"{_SCHEDULING}/test_last_first.py"
_GIVE_BACKS, _RAY = f"{_REQUEUE}/test_give_backs.py", "unit/queue/model/sources/test_rayclusters.py"
_KUBEFLOW, _OPERATOR = "unit/queue/model/sources/test_kubeflow.py", "ecosystem/test_trainingjobs.py"
_CLUSTER_VICTIMS = "unit/queue/cluster/test_victims.py"
_CONSOLIDATION = f"{_SCHEDULING}/preemption/test_consolidation.py"
_SIZES = "unit/api/test_moldable.py"
_FLUXJOBS, _CRDS = "integration/chart/test_fluxjobs.py", "unit/chart/test_crds.py"

_MOVES, _MOVES_SIMULATED = (
    f"{_SCHEDULING}/preemption/test_consolidation.py",
    "unit/queue/simulator/test_consolidation.py",
)
_MOVES_WORLDS, _MOVES_RULES = (
    f"{_SCHEDULING}/test_consolidation_worlds.py",
    f"{_SCHEDULING}/test_consolidation_rules.py",
)
_FLAVORS, _FLAVOR_MATCHES = (
    f"{_SCHEDULING}/test_flavor_waits.py",
    "unit/fluxion/engine/test_flavors.py",
)
_FLAVOR_TIMES, _FLAVORS_E2E = "unit/queue/model/test_flavors.py", f"{_E2E}/test_flavors.py"
_MOVED = "unit/queue/model/test_consolidations.py"
_WITHDRAWALS = f"{_SCHEDULING}/preemption/test_withdrawals.py"
_REFUSALS, _DIFFERENT = (
    f"{_SCHEDULING}/policies/test_refusals.py",
    f"{_SCHEDULING}/test_different_requests.py",
)

NO_PROMISES = (
    "Requests of which none is the larger one",
    "| policy |",
    "| what work says |",
    "| part |",
    "| reason |",
    "| victim |",
    "| what |",
    "| kind |",
    "| limits of |",
    "| a queue, and each",
    "| an [account](accounts.md), all",
    "| one workload |",
    "On the left the queue preempted nothing, and urgent work waited",
    "| a namespace: what",
    "| field of `limits` |",
    "| option |",
    "What an account may use in a period",
    "What else decides",
    "What becomes of it",
    "The pictures on this page",
    "Short work starts sooner",
    "Many Jobs can run with fewer",
    "`kubectl fluxqueue explain` says",
    "`fluxqueue simulate` runs",
    "Everybody may name",
    "`preemptionRules` says",
    "| field of `spec.consolidation` |",
    "| | node-hours |",
    "- `kubectl fluxqueue report` has no sum",
    "- It does not know what a restart costs",
    "- It does not weigh what other work waits",
    "- Work that does not restart where it was",
    "- A worker that is given back is lost for Ray",
    "| field of a flavor |",
    "- It does not move running work to a cheaper",
)
"""Headings of tables, and words around the promises."""

PROMISES: Mapping[str, tuple[str, ...]] = {
    "A queue can have several kinds of nodes": (
        f"{_FLAVORS}::test_work_gets_a_flavor_when_it_has_waited_for_it",
        f"{_FLAVORS_E2E}::test_work_uses_the_next_flavor_when_it_has_waited_for_it",
    ),
    "| `name` |": (f"{_FLAVORS}::test_the_reason_says_which_flavor_comes_next_and_when",),
    "| `nodeSelector` |": (f"{_FLAVOR_TIMES}::test_flavors_are_read_back_as_they_were_written",),
    "| `waitSeconds` |": (
        f"{_FLAVORS}::test_work_gets_a_flavor_when_it_has_waited_for_it",
        f"{_FLUXJOBS}::test_a_contradictory_queue_is_refused_with_a_sentence",
    ),
    "There are at most eight.": (
        f"{_FLUXJOBS}::test_a_contradictory_queue_is_refused_with_a_sentence",
        f"{_FLAVORS}::test_without_flavors_a_request_is_as_before",
    ),
    "- **The first flavor that starts it.**": (
        f"{_FLAVOR_MATCHES}::test_work_gets_the_first_flavor_with_room",
        f"{_FLAVOR_MATCHES}::test_each_start_is_in_the_first_open_flavor_that_has_enough",
    ),
    "- **All of it in one flavor.**": (
        f"{_FLAVOR_MATCHES}::test_a_gang_is_in_one_flavor",
        f"{_FLAVORS}::test_work_can_never_start_only_if_no_flavor_could_hold_it",
    ),
    "- A pod that is matched alone later": (
        f"{_FLAVORS}::test_work_of_a_lost_node_restarts_elsewhere_before_all_that_came_later",
    ),
    "- The wait counts from the submission": (
        f"{_FLAVORS}::test_the_wait_counts_from_the_submission_of_each_workload",
        f"{_FLAVOR_TIMES}::test_the_wait_counts_from_the_earliest_start_that_its_user_allows",
        f"{_FLAVORS}::test_a_new_leader_goes_on_with_the_same_times",
    ),
    "- Work that selects nodes itself": (f"{_FLAVORS}::test_work_that_selects_nodes_waits_for_their_flavor",),
    "- Work within a [FluxReservation]": (
        f"{_FLAVOR_TIMES}::test_work_for_a_reservation_has_no_flavors",
        f"{_FLAVOR_MATCHES}::test_a_flavor_is_not_for_work_in_a_reservation",
    ),
    "A reservation is in the flavor in which": (
        f"{_FLAVORS}::test_the_estimate_is_when_a_later_flavor_may_be_used",
        f"{_FLAVOR_MATCHES}::test_a_reservation_begins_when_a_later_flavor_may_be_used_and_is_free",
        f"{_FLAVOR_MATCHES}::test_a_reservation_is_in_the_flavor_that_is_free_first",
        f"{_FLAVOR_MATCHES}::test_nodes_of_a_closed_flavor_are_used_until_the_reservation_there_begins",
    ),
    "If a node of an earlier flavor becomes free": (
        f"{_FLAVOR_MATCHES}::test_a_reservation_moves_to_an_earlier_flavor_that_becomes_free_before",
        f"{_FLAVOR_MATCHES}::test_a_reservation_that_is_due_starts_in_an_earlier_flavor_that_is_free",
        f"{_FLAVOR_MATCHES}::test_work_never_fits_only_if_no_flavor_could_hold_it",
    ),
    "A flavor that no node has keeps nothing": (
        "unit/queue/status/test_fluxqueue_status.py::test_a_flavor_that_no_node_has_is_named",
        f"{_FLAVORS}::test_work_can_never_start_only_if_no_flavor_could_hold_it",
    ),
    "Work whose node is lost, drained": (
        f"{_FLAVORS}::test_work_of_a_lost_node_restarts_elsewhere_before_all_that_came_later",
        f"{_FLAVORS_E2E}::test_work_of_a_withdrawn_node_restarts_elsewhere_first_in_line",
    ),
    "An edit of `spec.flavors` counts": (
        f"{_FLAVORS_E2E}::test_work_uses_the_next_flavor_when_it_has_waited_for_it",
    ),
    "Prices go by labels of nodes": (
        "unit/queue/model/test_prices.py::test_the_first_entry_of_a_node_counts",
    ),
    "- It asks for no nodes": (f"{_FLUXJOBS}::test_a_contradictory_queue_is_refused_with_a_sentence",),
    "- The [simulator](simulator.md) has flavors where": (
        f"{_FORECASTS}::test_work_starts_in_a_flavor_when_it_has_waited_for_it",
    ),
    "Small work on many nodes can keep": (
        f"{_MOVES}::test_small_work_is_moved_and_restarts_first_in_line",
        f"{_MOVES}::test_nothing_is_moved_that_may_not_be",
        f"{_E2E}/test_consolidation.py::test_a_small_job_is_moved_for_a_wide_one_and_restarts",
    ),
    "| `enabled` |": (
        f"{_MOVES}::test_nothing_is_moved_that_may_not_be",
        f"{_MOVES}::test_work_that_was_moved_is_left_alone_for_a_while",
    ),
    "| `maxLostSeconds` |": (f"{_MOVES}::test_nothing_is_moved_that_may_not_be",),
    "| `againAfterSeconds` |": (f"{_MOVES}::test_work_that_was_moved_is_left_alone_for_a_while",),
    "Work tells of a checkpoint": (
        f"{_MOVES_SIMULATED}::test_a_job_that_ran_too_long_since_its_last_checkpoint_is_not_moved",
        "unit/queue/scheduling/policies/test_disciplines.py::test_nothing_is_moved_that_its_queue_would_not_start_again",
    ),
    "It is preemption with other victims": (
        f"{_MOVES}::test_moved_work_goes_on_if_the_first_is_gone_within_its_grace",
    ),
    "- **For the first in order**": (
        f"{_MOVES_WORLDS}::test_what_is_moved_fits_elsewhere_and_the_first_starts",
        f"{_REVIEWS}::test_rules_without_effect_are_accepted_with_a_warning",
    ),
    "- **What fits elsewhere now.**": (
        f"{_MOVES_WORLDS}::test_what_is_moved_fits_elsewhere_and_the_first_starts",
        f"{_MOVES}::test_work_is_not_moved_that_its_limits_would_not_start_there",
        f"{_MOVES_RULES}::test_what_the_first_has_to_be_near_is_not_moved_for_it",
    ),
    "- **Priorities do not matter**": (f"{_MOVES}::test_work_of_a_higher_priority_may_be_moved",),
    "- Jobs and gangs whose owner": (f"{_MOVES}::test_what_only_its_eviction_stops_is_not_moved",),
    "- Nor is work moved to which rules": (
        f"{_MOVES_RULES}::test_work_is_not_moved_that_must_be_away_from_the_first",
    ),
    "- [Elastic Jobs](shrinking.md) give": (
        f"{_MOVES}::test_an_elastic_job_gives_a_pod_back_if_that_lets_wider_work_start",
    ),
    "| won |": (f"{_MOVES}::test_small_work_is_moved_and_restarts_first_in_line",),
    "| lost, of moved work |": (
        f"{_MOVES}::test_small_work_is_moved_and_restarts_first_in_line",
        f"{_MOVES_SIMULATED}::test_nothing_is_moved_that_costs_more_than_is_won",
    ),
    "| lost, of pods that are given back |": (
        f"{_MOVES}::test_an_elastic_job_gives_nothing_back_for_work_that_wins_no_more_by_it",
    ),
    "A node counts as one, also if": (
        f"{_MOVES}::test_small_work_is_moved_and_restarts_first_in_line",
        "unit/cli/test_explain.py::test_work_says_what_was_moved_for_it_and_what_that_came_to",
    ),
    "In fact, the nodes of moved work count": (
        f"{_MOVED}::test_lost_in_fact_is_all_from_the_last_checkpoint_to_the_restart",
        f"{_MOVES}::test_what_was_won_and_lost_is_told_once_all_has_started",
    ),
    "- The first comes before all other work": (
        f"{_MOVED}::test_the_first_comes_before_what_was_moved_for_it",
    ),
    "- **During the grace**": (
        f"{_MOVES}::test_moved_work_goes_on_if_it_does_not_fit_elsewhere_any_more",
        f"{_MOVES}::test_moved_work_goes_on_if_the_first_is_gone_within_its_grace",
    ),
    "- **After the grace**": (
        f"{_MOVES}::test_what_arrives_meanwhile_does_not_take_the_room_of_moved_work",
        f"{_MOVED}::test_other_work_is_kept_waiting_only_after_the_grace",
    ),
    "- Nothing more is moved meanwhile": (
        f"{_MOVED}::test_it_is_over_two_minutes_after_the_grace_and_not_while_moved_work_is_read",
    ),
    "The search is bounded": (f"{_MOVES}::test_running_work_is_looked_at_every_ten_seconds_at_most",),
    "The simulator compares each policy": (
        f"{_SIMULATOR}::test_consolidation_is_compared_beside_each_policy_that_reserves",
    ),
    "`--scatter 8` gives nodes": (
        f"{_MOVES_SIMULATED}::test_wide_jobs_of_a_scattered_trace_wait_half_as_long_and_nothing_less_is_used",
    ),
    "A cycle goes through the waiting work in order": (
        f"{_REFUSALS}::test_random_worlds_are_the_same_where_everything_is_asked",
    ),
    "- If a request does not fit now, none of its kind": (
        f"{_DIFFERENT}::test_an_end_costs_few_questions_however_many_different_requests_wait",
    ),
    "- Starts, reservations and their order are the same": (
        f"{_REFUSALS}::test_random_worlds_are_the_same_where_everything_is_asked",
    ),
    "- The first hundred of each queue are always told": (
        f"{_DIFFERENT}::test_the_first_of_a_queue_are_told_figures_and_the_others_that_smaller_ones_wait_too",
        f"{_DIFFERENT}::test_what_can_never_start_is_told_so_wherever_it_waits",
    ),
    "Waiting work is considered by priority": (
        f"{_PRIORITIES}::test_without_weights_the_order_is_priority_and_submit_time",
    ),
    "Each FluxQueue has one": (f"{_PRIORITIES}::test_without_weights_the_order_is_priority_and_submit_time",),
    "| `fcfs`": (f"{_FCFS}::test_the_first_that_does_not_fit_closes_its_queue",),
    "| `easy`": (
        f"{_RESERVATIONS}::test_the_blocked_head_gets_a_reservation_and_only_shorter_work_is_backfilled",
    ),
    "| `hybrid`": (
        f"{_RESERVATIONS}::test_hybrid_reserves_for_the_first_few",
        f"{_SIMULATOR}::test_hybrid_protects_as_many_as_its_depth",
    ),
    "| `conservative`": (f"{_RESERVATIONS}::test_conservative_reserves_up_to_the_depth",),
    "Nothing overtakes.": (
        f"{_FCFS}::test_within_a_queue_nothing_ever_overtakes",
        f"{_SIMULATOR}::test_fcfs_never_overtakes",
    ),
    "The first blocked workload": (
        f"{_RESERVATIONS}::test_the_blocked_head_gets_a_reservation_and_only_shorter_work_is_backfilled",
        f"{_SIMULATOR}::test_easy_backfills_jobs_that_end_before_the_head_needs_their_nodes",
    ),
    "EASY with more than one": (
        f"{_PLANS}::test_a_hybrid_queue_reserves_for_as_many_as_it_states_and_backfills_the_rest",
    ),
    "Every workload within the depth": (
        f"{_SIMULATOR}::test_conservative_never_delays_a_job_for_those_behind",
    ),
    "Several sets of nodes": (
        f"{_RESERVATIONS}::test_a_reservation_leaves_what_is_free_to_others_if_its_queue_says_so",
    ),
    "Say `node-5` is free": (
        f"{_PLANS}::test_a_reservation_leaves_the_free_node_to_others_where_the_queue_says_so",
    ),
    "The start of the reservation is the same": (
        "unit/fluxion/engine/test_properties.py::test_the_choice_of_nodes_changes_no_start_of_a_reservation",
    ),
    "People state durations": (
        f"{_PREDICTIONS}::test_the_mean_of_the_last_two_run_times_is_predicted",
        f"{_PREDICTIONS}::test_a_prediction_is_at_least_a_minute",
        f"{_SCHEDULING}/test_predicted_durations.py::test_a_namespace_stands_for_a_user_who_is_not_known",
    ),
    "Say seven of eight nodes": (
        f"{_PLANS}::test_work_backfills_by_what_its_user_ran_before_where_the_queue_says_so",
    ),
    "- Nothing else goes by it": (
        f"{_SIMULATOR}::test_work_that_is_predicted_to_end_in_time_backfills_and_delays_nobody",
    ),
    "- Work that started so": (
        f"{_PREDICTIONS}::test_work_beyond_its_prediction_is_planned_for_twice_as_long",
        f"{_PREDICTIONS}::test_a_predicted_end_becomes_the_stated_one_where_no_reservation_is_in_the_way",
        f"{_SIMULATOR}::test_work_beyond_its_prediction_goes_on_and_the_reservation_moves",
    ),
    "- No prediction runs into": (
        f"{_RESERVATIONS}::test_no_prediction_runs_into_what_is_set_aside_for_people",
    ),
    "- With fewer than two known": (
        f"{_PREDICTIONS}::test_there_is_no_prediction_without_history_or_beyond_what_was_stated",
    ),
    "An Indexed Job whose pods": (f"{_MIN_PODS}::test_a_job_says_with_how_few_pods_it_may_start",),
    "`spec.minPodsPercent: 25`": (f"{_MIN_PODS}::test_a_queue_has_a_default_in_percent",),
    "**It starts with fewer": (
        f"{_GROWTH}::test_a_job_starts_with_the_nodes_that_are_free_where_that_ends_it_sooner",
        f"{_GROWTH}::test_a_job_waits_where_that_does_not_end_it_sooner",
        f"{_GROWTH}::test_a_small_start_delays_no_reservation",
    ),
    "The queue sets `parallelism`": (
        f"{_MOLDABLE}::test_a_moldable_job_is_released_with_as_many_pods_as_have_a_node",
        f"{_MIN_PODS}::test_a_job_starts_with_no_fewer_than_end_in_time",
        f"{_SMALLER}::test_a_job_passes_the_slots_of_its_small_start_on_to_its_later_indexes",
        f"{_SMALLER}::test_the_limit_of_an_account_counts_the_pods_that_a_job_was_started_with",
    ),
    "**It grows.**": (
        f"{_GROWTH}::test_a_job_grows_by_what_became_free",
        f"{_GROWTH}::test_a_job_does_not_grow_into_what_is_reserved",
        f"{_GROWTH}::test_pods_without_a_node_are_given_up_and_the_job_rests",
        f"{_MOLDABLE}::test_growth_comes_behind_all_other_work",
        f"{_RESIZER}::test_a_job_grows_by_one_guarded_patch_and_an_event",
    ),
    "- Who suspends such a Job": (
        f"{_SMALLER}::test_a_suspended_job_starts_again_with_as_many_pods_as_fit_then",
    ),
    "- Work that is cancelled, ends": (f"{_SMALLER}::test_a_small_job_that_is_deleted_frees_its_nodes",),
    "- In an `fcfs` queue nothing grows": (
        f"{_GROWTH}::test_nothing_grows_past_the_first_in_strict_order",
        f"{_RESIZER}::test_a_job_does_not_grow_in_a_queue_that_starts_nothing",
    ),
    "- Slices of the topology, required": (
        f"{_MIN_PODS}::test_what_cannot_be_waits_with_a_sentence",
        f"{_MOLDABLE}::test_work_that_needs_all_its_pods_is_not_moldable",
    ),
    "- `kubectl apply` of the manifest": (f"{_SMALLER}::test_pods_that_find_no_node_are_given_up",),
    "A workload with a reservation starts no later": (
        f"{_SIMULATOR}::test_with_true_durations_no_job_starts_after_its_first_reservation",
        f"{_SIMULATOR}::test_if_jobs_end_early_no_job_starts_after_its_first_reservation",
        f"{_ROUNDS}::test_with_true_durations_only_higher_priority_delays_a_first_reservation",
    ),
    "- work of higher priority (or": (
        f"{_RESERVATIONS}::test_work_of_higher_priority_comes_before_a_reservation",
    ),
    "- work of higher priority in another": (
        f"{_RESERVATIONS}::test_a_reservation_displaced_by_another_queue_is_planned_again_with_its_cause",
    ),
    "- a job on its nodes runs longer": (
        f"{_RESERVATIONS}::test_an_overrun_moves_the_reservation_on_its_nodes_with_its_cause",
    ),
    "- its nodes were removed": (
        f"{_RESERVATIONS}::test_a_reservation_moves_away_from_a_node_that_goes_down",
        f"{_RESERVATIONS}::test_a_reservation_ends_with_the_label_of_its_node_and_returns_with_it",
    ),
    "- the workload was held": (
        f"{_CYCLES}::test_work_that_is_held_or_asks_for_something_else_loses_its_reservation",
        f"{_RESERVATIONS}::test_a_queue_changed_to_fcfs_loses_its_reservations",
    ),
    "- the limits of its queue": (
        f"{_QUEUE_LIMITS}::test_a_reservation_over_an_edited_limit_is_dropped_with_that_cause",
    ),
    "When work ends early": (
        f"{_RESERVATIONS}::test_an_early_end_moves_the_start_forward_and_the_first_start_is_kept",
        f"{_RESERVATIONS}::test_the_next_leader_keeps_the_reservations",
    ),
    "Queues do not wait for each other": (
        f"{_FCFS}::test_queues_do_not_wait_for_each_other",
        f"{_DESCRIBE}::test_the_priority_of_the_queue_is_added_to_what_the_object_asks",
        f"{_ROUNDS}::test_all_work_of_a_queue_ignores_reservations_of_lower_priority",
        f"{_ROUNDS}::test_a_reservation_is_kept_against_work_of_equal_priority_in_another_queue",
        f"{_ROUNDS}::test_a_reservation_stays_if_work_of_higher_priority_does_not_need_its_nodes",
    ),
    "Give a queue of urgent work": (
        f"{_ROUNDS}::test_a_reservation_of_higher_priority_displaces_an_older_one_of_another_queue",
        f"{_E2E}/test_order.py::test_a_reservation_keeps_no_idle_node_from_a_queue_of_higher_priority",
    ),
    "| `fluxqueue/priority`, or": (
        f"{_DESCRIBE}::test_a_priority_beyond_what_the_queue_allows_is_refused_with_both_figures",
        f"{_DESCRIBE}::test_a_priority_wished_for_is_held_against_what_the_queue_allows_too",
    ),
    "| a PriorityClass |": (f"{_DESCRIBE}::test_a_priority_class_counts_up_to_what_the_queue_allows",),
    "| the PriorityClasses `system-": (f"{_E2E}/test_shared_cluster.py::test_nobody_goes_ahead_of_others",),
    "| that of fluxqueue's own programs": (
        f"{_E2E}/test_shared_cluster.py::test_nobody_goes_ahead_of_others",
        "unit/queue/cluster/test_caches.py::test_no_class_of_the_system_or_of_programs_counts_in_the_queue",
    ),
    "The queue `default` that the chart": (
        f"{_CRDS}::test_in_the_default_queue_nobody_goes_ahead_and_a_stated_duration_counts",
    ),
    "`fluxqueue local` is for one person": (
        "unit/local/test_values.py::test_the_one_person_of_a_local_cluster_may_order_what_waits",
    ),
    "`spec.priorityWeights` of": (f"{_SUMS}::test_it_is_the_formula",),
    "| age |": (
        f"{_PRIORITIES}::test_age_counts_up_to_the_maximum_and_a_priority_of_its_own_with_its_weight",
    ),
    "| fair share |": (f"{_PRIORITIES}::test_the_account_that_used_less_than_its_share_comes_first",),
    "| size |": (f"{_SUMS}::test_it_is_the_formula",),
    "| queue |": (f"{_SUMS}::test_it_is_the_formula",),
    "| its own |": (
        f"{_PRIORITIES}::test_age_counts_up_to_the_maximum_and_a_priority_of_its_own_with_its_weight",
    ),
    "Without weights, or with the defaults": (
        f"{_SUMS}::test_a_queue_without_weights_adds_nothing",
        f"{_VICTIMS}::test_only_work_that_is_below_in_stated_priority_and_in_order_may_be_a_victim",
        f"{_PRIORITIES}::test_new_work_gets_its_priority_at_once_and_an_edit_of_its_queue_counts_at_once",
        f"{_INTEGRATION}/test_fair_share_order.py::test_the_account_that_ran_less_goes_first_also_over_queues_and_reservations",
    ),
    "`--weights` prints": (
        "unit/cli/test_priorities.py::test_the_weights_of_queues_are_shown_as_they_count",
    ),
    "- The duration of a workload": (
        f"{_DESCRIBE}::test_the_wall_time_is_what_the_object_says_best",
        f"{_DESCRIBE}::test_a_short_duration_never_counts_as_more_than_the_queue_allows",
    ),
    "- Work that runs longer": (
        f"{_HISTORY}::test_an_overrun_moves_the_end_by_half_of_short_work_and_a_tenth_of_long_work",
    ),
    "- Work without an end": (
        f"{_ESTIMATES}::test_nothing_is_expected_to_start_after_work_without_an_end",
        f"{_FORECASTS}::test_nothing_is_planned_on_nodes_of_work_without_an_end",
    ),
    "| `running` |": (
        f"{_LIMITS}::test_at_the_limit_of_running_workloads_the_next_waits_with_both_figures",
        f"{_LIMITS}::test_a_limit_of_an_account_holds_for_all_accounts_below_it_together",
    ),
    "| `nodes` |": (
        f"{_LIMITS}::test_a_node_counts_once_however_many_share_it",
        f"{_LIMITS}::test_nodes_of_an_account_are_counted_over_all_queues",
    ),
    "| `resources` |": (
        f"{_LIMITS}::test_any_resource_may_be_limited_and_every_figure_is_named",
        f"{_LIMITS}::test_any_resource_may_be_limited_of_a_queue_and_of_each_namespace_in_it",
    ),
    "| `cores` |": (f"{_LIMITS}::test_cores_may_be_used_up_to_the_limit_and_no_further",),
    "| `submitted` |": (
        f"{_SCHEDULING}/limits/test_submitted_limits.py::test_the_latest_are_beyond_and_what_has_nodes_counts_first",
        f"{_SCHEDULING}/limits/test_submitted_limits.py::test_what_is_beyond_is_not_matched_nor_in_a_trial",
        f"{_ACCOUNT_LIMITS}::test_work_beyond_what_an_account_may_submit_waits_until_earlier_work_has_ended",
    ),
    "| `perUser` |": (
        f"{_SCOPES}::test_each_user_of_a_queue_has_the_limit_in_all_namespaces_together",
        f"{_SCOPES}::test_each_user_of_an_account_has_the_limit_in_it_and_below_it",
    ),
    "| `perNamespace` |": (
        f"{_LIMITS}::test_one_namespace_at_its_limit_leaves_room_for_another",
        f"{_LIMITS}::test_any_resource_may_be_limited_of_a_queue_and_of_each_namespace_in_it",
    ),
    "| `perWorkload` |": (
        f"{_LIMITS}::test_one_workload_may_ask_for_no_more_than_the_limit_of_each_whatever_others_use",
        f"{_LIMITS}::test_an_account_and_those_above_it_limit_each_workload",
    ),
    "A workload must be within the limits": (
        f"{_LIMITS}::test_the_limits_of_queue_and_account_hold_both",
        f"{_LIMITS}::test_work_that_requests_nothing_of_a_resource_is_not_limited_by_it",
    ),
    "- A workload over a limit waits": (
        f"{_QUEUE_LIMITS}::test_work_over_the_limit_of_its_namespace_lets_others_start",
        f"{_ACCOUNT_LIMITS}::test_an_account_at_its_limit_lets_others_start",
    ),
    "- A reservation counts as use": (
        f"{_QUEUE_LIMITS}::test_a_reservation_counts_as_use_so_that_it_can_start",
        f"{_ACCOUNT_LIMITS}::test_a_reservation_of_an_account_counts_as_use_and_ends_with_an_edit_of_the_limit",
    ),
    "- A limit is never exceeded": (
        f"{_ACCOUNT_LIMITS}::test_a_grant_on_too_many_nodes_of_an_account_is_cancelled",
        f"{_LIMITS}::test_under_a_limit_below_the_present_use_nothing_starts_also_on_nodes_in_use",
    ),
    "- Work that asks for more than `perWorkload`": (
        f"{_LIMITS}::test_what_alone_is_too_large_is_left_out_before_a_match_and_told_why",
    ),
    "- How many nodes work gets": (
        f"{_LIMITS}::test_a_request_that_got_too_many_nodes_beside_others_waits_until_as_many_are_free_of_the_limit",
        f"{_LIMITS}::test_a_request_that_got_too_many_nodes_is_matched_again_after_minutes_or_if_the_limit_is_raised",
        f"{_QUEUE_LIMITS}::test_much_work_that_is_too_wide_beside_others_lets_what_is_behind_it_start",
    ),
    "- Nothing is [preempted](preemption.md) for work over": (
        f"{_ACCOUNT_LIMITS}::test_work_is_preempted_only_within_the_limits_of_the_account",
    ),
    "- Work of which some pods have ended": (f"{_LIMITS}::test_ended_slots_do_not_count",),
    "The user is the one who submitted": (
        f"{_SCOPES}::test_work_counts_for_who_submitted_it_and_that_of_programs_for_its_namespace",
        f"{_SCOPES}::test_each_user_of_a_queue_has_the_limit_in_all_namespaces_together",
        f"{_SCOPES}::test_the_programs_of_a_namespace_have_the_limit_of_one_user_together",
    ),
    "Since a workload over a limit blocks nobody": (
        f"{_ACCOUNT_LIMITS}::test_wide_work_is_overtaken_under_its_limit_unless_the_queue_stops",
        f"{_STOPS}::test_limits_of_queues_and_namespaces_keep_the_order_too",
        f"{_STOPS}::test_work_that_wants_nothing_of_what_is_waited_for_starts",
    ),
    "Other accounts go on": (
        f"{_STOPS}::test_the_first_that_waits_keeps_those_of_its_account_and_below_behind_it",
        f"{_STOPS}::test_work_that_is_over_the_limit_by_itself_keeps_nobody",
        f"{_STOPS}::test_other_queues_let_later_work_start",
    ),
    "A Job whose pods would not fit": (
        f"{_QUOTAS}::test_work_that_fits_may_start_and_other_work_waits_with_figures_and_a_remedy",
        f"{_QUOTAS}::test_what_was_granted_and_is_not_used_yet_is_not_granted_again",
        f"{_QUOTAS}::test_work_whose_pods_exist_is_not_kept_waiting",
    ),
    "How much of one namespace may wait": (
        f"{_BUDGETS}::test_work_beyond_the_budget_is_a_row_without_a_request",
        f"{_BUDGETS}::test_no_cycle_considers_what_was_left_out",
        f"{_BUDGETS}::test_the_oldest_is_considered_when_earlier_work_ends",
        f"{_BUDGETS}::test_a_queue_may_have_a_budget_of_its_own",
        f"{_BUDGETS}::test_other_namespaces_are_not_concerned",
    ),
    "`matchPolicy` selects": (
        f"{_INTEGRATION}/test_match_policies.py::test_work_is_matched_by_the_policy_of_its_queue_and_edits_apply_at_once",
        f"{_INTEGRATION}/test_match_policies.py::test_whole_nodes_are_reserved_granted_and_restored_as_whole_nodes",
    ),
    "Preemption is off unless": (
        f"{_PREEMPTION}::test_a_queue_without_preemption_loses_no_work",
        f"{_PREEMPTION}::test_work_that_nobody_creates_again_is_taken_last_and_told_so",
        f"{_VICTIMS}::test_one_larger_victim_is_better_than_two",
        f"{_VICTIMS}::test_victims_suffice_are_all_needed_and_of_lower_priority",
        f"{_PREEMPTING}::test_the_youngest_of_the_lowest_is_evicted_with_a_reason_and_keeps_its_order",
    ),
    "| Job, MiniCluster |": (f"{_GRACE}::test_a_victim_is_told_and_goes_on_for_its_grace",),
    "| gang of a Deployment": (
        f"{_GROUPS}::test_new_pods_wait_with_a_group_that_is_evicted_and_are_matched_with_it",
        f"{_GROUPS}::test_a_group_waits_for_an_owner_that_wants_pods",
        f"{_KINDS}::test_a_gang_of_a_statefulset_makes_room_and_comes_back_as_one",
    ),
    "| single pod of a Deployment": (
        f"{_GROUPS}::test_a_preempted_pod_of_an_owner_is_evicted_and_hands_its_submit_time_on",
        "unit/queue/model/test_requeue_states.py::test_the_submit_time_of_a_preempted_pod_passes_to_one_replacement",
        f"{_KINDS}::test_a_pod_of_a_deployment_makes_room_and_its_replacement_keeps_the_submit_time",
    ),
    "| bare pod, pod group": (
        f"{_GROUPS}::test_a_group_that_nobody_creates_again_ends_and_says_so",
        f"{_KINDS}::test_a_plain_pod_group_ends_and_says_that_it_is_lost",
    ),
    "| pods of another owner": ("unit/queue/cluster/test_victims.py::test_what_becomes_of_a_single_pod",),
    "| a pod that a Job starts": (
        f"{_SHRINKING}::test_the_further_pods_of_a_job_are_free_with_it_and_end_with_it",
        f"{_SHRINKING}::test_a_pod_that_grew_ends_before_a_slot_that_loses_as_much",
    ),
    "| a pod of a JobSet": ("unit/queue/cluster/test_victims.py::test_what_becomes_of_a_single_pod",),
    "| a DaemonSet's pod": (
        "unit/queue/cluster/test_victims.py::test_what_becomes_of_a_single_pod",
        "unit/queue/cluster/test_victims.py::test_nothing_in_a_namespace_that_is_not_managed_is_evicted",
    ),
    "| gang of a JobSet": (
        "unit/queue/requeue/test_owner_suspension.py::test_a_new_leader_goes_on_wherever_the_former_one_ended",
        "unit/queue/cluster/test_victims.py::test_without_the_right_to_suspend_pods_of_jobs_are_spared_and_others_ask_their_budgets",
        "e2e/test_preempt_owners.py::test_a_jobset_is_suspended_and_resumed_and_comes_back_as_one",
        "e2e/test_preempt_owners.py::test_a_pytorchjob_is_suspended_and_resumed_and_comes_back_as_one",
    ),
    "Pods are evicted by the Eviction API": (
        f"{_SCHEDULING}/policies/test_disruption_budgets.py::test_no_budget_is_used_beyond_what_it_allows",
        f"{_GROUPS}::test_a_pod_whose_budget_forbids_it_is_asked_for_again",
        f"{_GROUPS}::test_a_gang_whose_budget_forbids_it_costs_few_calls_and_each_pass_asks_for_other_pods",
        "unit/queue/cluster/test_victims.py::test_budgets_that_cannot_be_counted_allow_nothing",
        "unit/queue/requeue/test_owner_suspension.py::test_an_owner_that_cannot_be_suspended_goes_on_and_an_event_says_so",
        f"{_KINDS}::test_work_that_a_budget_protects_is_spared_and_the_next_makes_room",
    ),
    "No work is preempted without effect": (
        f"{_WORLDS}::test_no_more_work_ends_than_one_that_starts_needs",
        f"{_WORLDS}::test_no_work_ends_for_one_of_two_that_does_not_start",
        f"{_WORLDS}::test_nodes_go_back_to_the_victims_if_the_other_is_gone",
        f"{_PREEMPTION}::test_no_work_is_evicted_if_that_does_not_let_the_other_start",
        f"{_PREEMPTION}::test_nothing_is_preempted_for_work_behind_more_than_a_hundred",
        f"{_PREEMPTION}::test_work_that_no_victims_would_help_does_not_keep_the_next_from_preempting",
        f"{_PREEMPTION}::test_a_strict_queue_preempts_for_nobody_behind_its_first",
        f"{_PREEMPTION}::test_no_second_victim_is_chosen_while_one_drains",
        f"{_PREEMPTION}::test_work_that_is_about_to_start_preempts_nothing",
        f"{_PREEMPTION}::test_a_victim_that_never_stops_does_not_end_preemption_for_others",
        f"{_PREEMPTING}::test_free_nodes_next_to_victims_stay_reserved_while_they_drain",
        f"{_PREEMPTION}::test_later_work_takes_no_free_node_that_work_behind_the_first_needs",
        f"{_PREEMPTING}::test_no_work_is_evicted_for_work_over_a_limit",
        f"{_SCHEDULING}/graph/test_pod_rule_tracker.py::test_what_work_has_to_be_near_is_not_preempted_for_it",
    ),
    "Why nothing is preempted is said": (
        f"{_WHY_NOT}::test_the_first_few_are_told_one_after_the_other",
        f"{_WHY_NOT}::test_the_least_important_that_would_suffice_is_named",
        f"{_GRACE}::test_work_runs_for_its_least_time_before_it_is_preempted",
    ),
    "Up to three are named": (
        f"{_WHY_NOT}::test_a_few_are_named_and_the_rest_is_counted",
        f"{_WHY_NOT}::test_work_of_other_namespaces_is_not_named",
        f"{_WHY_NOT}::test_what_the_cluster_does_not_allow_is_said",
        f"{_WHY_NOT}::test_a_workload_is_looked_at_once_in_ten_seconds_however_much_changes",
        f"{_WHY_NOT}::test_it_is_withdrawn_when_it_is_not_so_any_more",
        f"{_WHY_NOT}::test_nothing_is_said_where_nothing_that_runs_is_the_cause",
    ),
    "- **Within its grace a preemption": (
        f"{_WITHDRAWALS}::test_a_victim_in_its_grace_goes_on_if_the_other_is",
        f"{_WITHDRAWALS}::test_a_victim_goes_on_if_more_important_work_comes_that_its_nodes_do_not_help",
        f"{_WITHDRAWALS}::test_a_victim_goes_on_if_a_free_node_is_taken_that_the_other_needs_too",
        f"{_WITHDRAWALS}::test_a_victim_stops_if_what_takes_the_free_node_has_ended_by_then",
        f"{_WITHDRAWALS}::test_nothing_is_withdrawn_while_it_is_needed_or_after_the_grace",
        f"{_WITHDRAWALS}::test_other_work_takes_over_what_it_needs_and_the_rest_goes_on",
        f"{_WITHDRAWALS}::test_a_slot_that_ended_meanwhile_stays_given_back",
        f"{_WITHDRAWALS}::test_a_pod_by_which_a_job_grew_goes_on_and_its_job_gave_nothing_back",
        "unit/queue/requeue/test_requeuer.py::test_what_goes_on_or_is_chosen_again_in_its_grace_counts_as_no_requeue",
        f"{_WITHDRAWALS}::test_other_work_takes_over_pods_that_were_to_be_given_back",
        f"{_WITHDRAWALS}::test_a_job_that_gave_pods_back_and_then_stops_as_a_whole_has_all_its_grace",
        f"{_WITHDRAWALS}::test_a_job_whose_pods_were_all_told_as_it_stopped_gives_some_back_at_that_time",
        f"{_GRACE}::test_a_victim_goes_on_if_the_other_is_deleted_in_its_grace",
        f"{_SHRUNK}::test_all_pods_go_on_if_the_other_is_deleted_in_the_grace",
    ),
    "[Elastic work](elastic.md#elastic-work-gives-pods-back-first) gives": (
        f"{_SHRINKING}::test_a_job_is_evicted_only_if_what_it_can_spare_does_not_suffice",
        f"{_PREEMPTION}::test_an_account_takes_back_what_is_guaranteed_to_it_from_one_that_borrows",
    ),
    "- Work that has run for less": (
        f"{_PREEMPTION}::test_work_is_spared_until_it_ran_for_its_least_time",
        f"{_GRACE}::test_work_runs_for_its_least_time_before_it_is_preempted",
    ),
    "- Work that would be evicted as a whole anyway": (
        f"{_REQUEUE}/test_startup_monitor.py::test_a_preempted_job_that_loses_a_node_has_no_grace_any_more",
        f"{_REQUEUE}/test_requeuer.py::test_a_grace_that_is_of_no_use_ends_at_once_and_its_job_is_told_why",
        f"{_REQUEUE}/test_maintenances.py::test_preempted_work_is_evicted_once_and_has_no_grace_any_more",
    ),
    "- With `graceSeconds` a victim": (
        f"{_GRACE}::test_a_victim_is_told_and_goes_on_for_its_grace",
        f"{_GRACE}::test_a_victim_that_ends_within_its_grace_has_completed",
        f"{_PREEMPTION}::test_a_victim_with_a_grace_is_evicted_with_its_time_and_planned_to_end_after_it",
    ),
    "- The work lost is nodes": (
        f"{_POSSIBLE}::test_what_is_lost_is_nodes_times_the_time_since_the_last_checkpoint",
        "unit/queue/model/test_preemption_notices.py::test_a_checkpoint_that_is_no_time_does_not_count",
    ),
    "A Job with [`fluxqueue/min-pods`]": (
        f"{_SHRINKING}::test_pods_are_given_back_before_a_younger_job_of_lower_priority_is_evicted",
        f"{_SHRUNK}::test_a_job_gives_pods_back_goes_on_and_grows_again",
    ),
    "- Both sides are told": (
        "unit/queue/requeue/test_give_backs.py::test_a_job_that_gives_only_pods_back_by_which_it_grew_says_so_while_they_end",
        f"{_PREEMPTING}::test_what_ends_for_work_that_waits_is_said_to_it",
        f"{_SHRINKING}::test_work_is_told_for_what_it_waits_since_when_and_until_when_at_most",
        "unit/cli/test_explain.py::test_work_for_which_something_was_preempted_says_for_what_it_waits_and_until_when_at_most",
        "unit/cli/test_explain.py::test_running_work_says_what_it_gave_back",
        "unit/queue/model/test_time_limits.py::test_the_end_of_work_says_what_it_gave_back",
        f"{_SHRUNK}::test_a_job_gives_pods_back_goes_on_and_grows_again",
    ),
    "- Exactly the pods on the nodes": (
        f"{_SCHEDULING}/test_shrinking_worlds.py::test_no_more_pods_end_than_needed_and_none_below_the_least",
        f"{_SHRINKING}::test_the_pods_that_lose_least_end",
        f"{_SHRINKING}::test_the_nodes_of_the_pods_that_lose_least_together_are_taken",
        f"{_VICTIMS}::test_of_many_pods_those_of_the_nodes_end_that_lose_least_together",
        f"{_VICTIMS}::test_of_many_pods_that_share_nodes_no_more_end_than_are_needed_on_each",
        f"{_SHRUNK}::test_a_job_gives_pods_back_goes_on_and_grows_again",
    ),
    "- If what can be spared": (
        f"{_SHRINKING}::test_a_job_is_evicted_only_if_what_it_can_spare_does_not_suffice",
        f"{_SHRINKING}::test_what_is_given_back_counts_beside_those_that_are_evicted",
        f"{_SHRUNK}::test_a_job_at_its_least_is_evicted_as_a_whole",
    ),
    "A Deployment or ReplicaSet with `fluxqueue/min-pods`": (
        f"{_FLOORS}::test_pods_above_the_floor_end_before_a_younger_job_is_evicted",
        f"{_FLOORS}::test_jobs_and_deployments_give_pods_back_for_the_same_work",
        f"{_SHRUNK}::test_a_deployment_gives_pods_above_its_floor_back_and_grows_again",
    ),
    "- The pods of the plan": (
        f"{_SCHEDULING}/test_shrinking_worlds.py::test_no_more_pods_end_than_needed_and_none_below_the_least",
        f"{_FLOORS}::test_no_more_end_than_their_budget_allows",
        f"{_FLOORS}::test_pods_go_on_together_if_nobody_needs_their_nodes_any_more",
        f"{_SHRUNK}::test_a_deployment_gives_pods_above_its_floor_back_and_grows_again",
    ),
    "- `replicas` stays": (
        f"{_SHRUNK}::test_a_deployment_gives_pods_above_its_floor_back_and_grows_again",
        f"{_E2E}/test_preempt_kinds.py::test_a_pod_of_a_deployment_makes_room_and_its_replacement_keeps_the_submit_time",
    ),
    "- Pods that start, stop": (
        f"{_CLUSTER_VICTIMS}::test_a_pod_of_a_deployment_shows_its_floor_and_which_pods_run",
        f"{_FLOORS}::test_pods_that_are_to_stop_do_not_count_as_running",
        f"{_FLOORS}::test_a_pod_that_ends_anyway_is_not_given_back",
        f"{_FLOORS}::test_a_pod_that_only_starts_is_needed_only_while_too_few_run",
    ),
    "- Below the minimum": (
        f"{_FLOORS}::test_the_floor_holds_while_anything_else_of_its_priority_helps",
        f"{_FLOORS}::test_two_others_are_evicted_before_one_pod_that_is_needed",
        f"{_FLOORS}::test_below_the_floor_pods_end_where_nothing_else_helps_and_are_not_called_given_back",
    ),
    "- StatefulSets, MiniClusters and workers": (
        f"{_SHRUNK}::test_a_statefulset_gives_its_highest_ordinals_back_and_grows_again",
        f"{_SHRUNK}::test_a_minicluster_gives_its_highest_ranks_back_and_grows_again",
        f"{_SHRUNK}::test_a_raycluster_gives_workers_back_and_grows_again",
    ),
    "- No Job goes below its minimum": (
        f"{_SCHEDULING}/test_shrinking_worlds.py::test_no_more_pods_end_than_needed_and_none_below_the_least",
        f"{_SHRINKING}::test_the_grace_and_the_minimum_run_time_hold_for_pods_too",
        "unit/queue/cluster/test_victims.py::test_each_running_pod_of_a_job_loses_what_it_did_since_it_saved",
        "unit/queue/requeue/test_give_backs.py::test_it_goes_on_until_the_grace_is_over_and_is_told",
        "unit/queue/requeue/test_give_backs.py::test_a_job_of_which_other_pods_failed_meanwhile_keeps_its_least",
        f"{_SHRUNK}::test_a_leader_that_is_killed_in_the_grace_ends_the_same_pods",
    ),
    "- What ends counts as no failure": (
        "unit/queue/requeue/test_give_backs.py::test_the_pod_of_a_slot_that_is_given_back_ends_and_counts_as_no_failure",
        f"{_SHRUNK}::test_a_job_gives_pods_back_goes_on_and_grows_again",
    ),
    "- The Job is as one that was started": (
        f"{_SCHEDULING}/test_shrinking_graph.py::test_what_a_job_keeps_is_planned_until_it_ends_with_fewer_pods",
        f"{_SHRINKING}::test_a_job_gives_back_as_few_pods_as_the_other_needs_and_goes_on",
        f"{_SHRUNK}::test_a_job_gives_pods_back_goes_on_and_grows_again",
    ),
    "- While its first pods are pinned": (
        "unit/queue/cluster/test_victims.py::test_a_job_that_could_give_pods_back_is_spared_while_its_template_pins_new_pods",
    ),
    "- Until the pods have ended": (f"{_SHRINKING}::test_no_other_work_takes_what_is_free_before_the_rest",),
    "| `WaitingForNodes`": (
        f"{_CYCLES}::test_a_reason_names_the_reservation_that_is_held_and_no_former_one",
    ),
    "| `Reservation`": (
        "unit/fluxion/engine/test_advance_reservations.py::test_a_refusal_names_the_reservation_that_alone_is_in_the_way",
        "unit/fluxion/engine/test_advance_reservations.py::test_work_that_waits_for_its_own_reservation_is_told_when_that_begins",
    ),
    "| `BlockedByReservation`": (
        f"{_RESERVATIONS}::test_the_reason_of_work_behind_a_reservation_names_its_holder",
        f"{_RESERVATIONS}::test_the_reason_of_work_behind_a_reservation_names_no_work_of_another_namespace",
        f"{_CYCLES}::test_a_reason_names_no_work_that_waits_no_more",
        f"{_CYCLES}::test_a_reason_names_no_start_of_other_work_that_has_moved",
    ),
    "| `QueueLimit`": (
        f"{_LIMITS}::test_at_the_limit_of_running_workloads_the_next_waits_with_both_figures",
        f"{_QUOTAS}::test_work_that_fits_may_start_and_other_work_waits_with_figures_and_a_remedy",
        f"{_BUDGETS}::test_work_beyond_the_budget_is_a_row_without_a_request",
    ),
    "| `AccountLimit`": (f"{_LIMITS}::test_any_resource_may_be_limited_and_every_figure_is_named",),
    "| `Preempted`": (
        f"{_PREEMPTING}::test_the_youngest_of_the_lowest_is_evicted_with_a_reason_and_keeps_its_order",
    ),
    "| `Unsatisfiable`": (
        f"{_INTEGRATION}/test_scheduling.py::test_unsatisfiable_work_gets_its_reason_even_behind_a_blocked_head",
        f"{_INTEGRATION}/test_scheduling.py::test_unsatisfiable_work_starts_once_a_larger_node_is_added",
    ),
    "Position and estimate are": (
        f"{_STATUS}::test_only_the_first_hundred_are_shown_and_started_work_is_forgotten",
        f"{_STATUS}::test_other_positions_and_starts_are_shown_within_seconds_while_few_change",
        f"{_STATUS}::test_a_new_estimate_is_shown_at_once_and_a_changed_one_after_half_a_minute",
        f"{_STATUS}::test_a_reservation_that_moves_is_shown_at_once_as_the_reason_says",
        f"{_STATUS}::test_many_queues_write_few_estimates_at_once_and_all_of_them_in_time",
        f"{_ESTIMATES}::test_positions_are_those_of_now_between_two_plans",
        "unit/queue/status/test_fluxjob_pace.py::test_early_estimates_are_written_at_once_and_then_one_a_second",
    ),
    "- with a reservation, `eta`": (
        f"{_STATUS}::test_a_reservation_is_shown_with_the_estimate_that_it_makes_exact",
    ),
    "- without one, `eta` is": (
        f"{_ESTIMATES}::test_pending_work_is_planned_one_after_the_other",
        f"{_ESTIMATES}::test_an_update_soon_after_another_returns_the_delay",
        f"{_HISTORY}::test_the_range_begins_before_nearly_all_former_starts",
        f"{_HISTORY}::test_without_history_the_range_begins_now",
        f"{_E2E}/test_forecasts.py::test_the_simulator_and_the_queue_give_the_same_times",
    ),
    "- `etaFirst` is the first": (
        f"{_STATUS}::test_the_first_estimate_is_shown_to_the_end",
        f"{_ESTIMATES}::test_the_first_estimate_stays_although_others_follow_or_none",
        f"{_ESTIMATES}::test_what_a_former_leader_published_is_the_first_estimate",
    ),
    "- there is no estimate for": (
        f"{_ESTIMATES}::test_work_that_waits_for_a_limit_has_a_position_and_no_estimate",
        f"{_ESTIMATES}::test_a_shape_that_fits_no_cluster_takes_no_position",
        f"{_ESTIMATES}::test_nothing_is_expected_to_start_after_work_without_an_end",
        f"{_ESTIMATES}::test_first_come_first_served_expects_nothing_behind_work_of_which_nothing_is_known",
    ),
    "| a duration that does not parse": (
        f"{_BAD}::test_an_invalid_duration_is_refused_with_the_name_of_its_field",
        f"{_DESCRIBE}::test_what_is_wrong_is_a_reason_naming_object_and_field",
    ),
    "| a duration beyond `maxDuration": (
        f"{_DESCRIBE}::test_longer_than_the_queue_allows_is_refused_with_both_figures",
    ),
    "| `fluxqueue/min-pods` that is no": (
        f"{_SMALLER}::test_what_cannot_be_moldable_is_refused_with_one_sentence",
    ),
    "| `fluxqueue/min-pods` on a pod template": (
        f"{_SIZES}::test_other_pods_cannot_have_a_floor",
        "unit/webhook/test_pods.py::test_a_floor_that_cannot_be_is_refused_or_told_to_its_controller",
        f"{_SHRUNK}::test_a_floor_that_is_no_number_keeps_pods_waiting_with_one_sentence",
    ),
    "| `fluxqueue/min-pods` with required": (f"{_MIN_PODS}::test_what_cannot_be_waits_with_a_sentence",),
    "| `minPodsPercent` out of": (f"{_SMALLER}::test_what_cannot_be_moldable_is_refused_with_one_sentence",),
    "| a priority that is no number": (
        f"{_DESCRIBE}::test_a_priority_beyond_what_the_queue_allows_is_refused_with_both_figures",
        f"{_DESCRIBE}::test_a_class_that_does_not_exist_is_said_before_its_pods_are_refused",
    ),
    "| a FluxQueue with an unknown policy": (
        f"{_CRDS}::test_a_queue_s_closed_sets_and_their_defaults_are_those_of_the_code",
        f"{_PLANS}::test_a_queue_whose_plan_cannot_be_meant_is_refused_with_its_field",
        f"{_FLUXJOBS}::test_a_contradictory_queue_is_refused_with_a_sentence",
    ),
    "| `planning` in a queue": (
        f"{_PLANS}::test_a_queue_without_reservations_is_told_that_its_plan_has_no_effect",
    ),
    "| a weight that is no whole number": (
        f"{_E2E}/test_accounts.py::test_a_weight_that_cannot_be_meant_is_refused_with_its_field",
    ),
    "| a FluxQueue that contradicts": (
        f"{_FLUXJOBS}::test_a_contradictory_queue_is_refused_with_a_sentence",
    ),
    "| a `nodeSelector` or namespace": (
        f"{_EDITS}::test_a_queue_whose_selectors_can_match_nothing_is_refused",
    ),
    "| a `nodeSelector` that matches": (
        "unit/queue/status/test_fluxqueue_status.py::test_a_node_selector_that_matches_no_node_is_reported",
        f"{_EDITS}::test_the_status_of_a_queue_counts_its_work_and_reports_whether_it_has_nodes",
    ),
    "| `flavors`: more than 8": (f"{_FLUXJOBS}::test_a_contradictory_queue_is_refused_with_a_sentence",),
    "| a flavor that no node has | accepted": (
        "unit/queue/status/test_fluxqueue_status.py::test_a_flavor_that_no_node_has_is_named",
        f"{_FLAVORS}::test_work_can_never_start_only_if_no_flavor_could_hold_it",
    ),
    "| a limit of zero": (f"{_REVIEWS}::test_surprising_limits_are_accepted_with_a_warning",),
    "| a queue deleted with work": (
        f"{_EDITS}::test_work_of_a_deleted_queue_waits_until_the_queue_exists_again",
        f"{_RESERVATIONS}::test_deletion_of_a_queue_drops_its_reservations_and_its_work_keeps_its_order",
    ),
    "| a queue drained with work": (f"{_EDITS}::test_a_drained_queue_starts_its_work_and_accepts_no_more",),
    "| a queue held": (f"{_EDITS}::test_a_held_queue_starts_nothing_and_an_open_one_does",),
    "| a queue that is not for": (
        f"{_DESCRIBE}::test_a_queue_that_is_not_for_the_namespace_says_so_before_anything_else",
    ),
    "| an edit of running work": (f"{_EDITS}::test_a_running_job_refuses_edits_with_a_reason",),
    "It reads a trace in the Standard": (
        f"{_SIMULATOR}::test_gaps_in_a_trace_have_rules_and_are_counted",
        f"{_SIMULATOR}::test_the_command_writes_a_table_json_csv_and_pictures",
    ),
    "| `--load 0.9`": (f"{_SIMULATOR}::test_a_scaled_trace_has_the_offered_load",),
    "| `--chains` |": (
        "unit/queue/simulator/test_simulated_chains.py::test_a_job_waits_for_the_end_of_the_one_before_it_and_for_its_think_time",
    ),
    "| `--enforce-duration` |": (f"{_SIMULATOR}::test_a_queue_that_enforces_durations_ends_jobs_there",),
    "| `--free-last`, `--predict` |": (
        f"{_SIMULATOR}::test_work_that_is_predicted_to_end_in_time_backfills_and_delays_nobody",
    ),
    "| `--min-pods 25` |": (
        "unit/queue/simulator/test_simulated_growth.py::test_the_command_lets_jobs_start_smaller",
    ),
    "| `--priority 4=10`": (
        f"{_SIMULATOR}::test_a_victim_goes_on_for_its_grace_and_may_end_in_it",
        f"{_SIMULATOR}::test_time_limits_and_preemption_are_options",
    ),
    "| `--account physics=3": (f"{_SHARES}::test_jobs_of_a_trace_are_given_to_accounts_by_their_parts",),
    "| `--among-users` |": (f"{_SHARES}::test_users_of_an_account_get_as_much_whoever_submits_more",),
    "| `--guarantee physics=16` |": (
        "unit/queue/simulator/test_simulated_guarantees.py::test_covered_work_takes_its_nodes_back_and_the_borrower_begins_again",
    ),
    "`fluxqueue simulate --from-cluster`": (
        f"{_FORECASTS}::test_pending_work_starts_when_running_work_has_ended_as_stated",
        f"{_FORECASTS}::test_the_table_distinguishes_policies_and_added_nodes",
        f"{_FORECASTS}::test_foreign_pods_keep_their_nodes",
        f"{_FORECASTS}::test_limits_of_a_queue_hold_in_a_forecast",
        f"{_FORECASTS}::test_the_limit_of_the_account_of_a_namespace_delays_its_work_in_a_forecast_too",
        f"{_FORECASTS}::test_work_starts_as_its_budget_allows_and_goes_on_in_the_next_period",
        f"{_FORECASTS}::test_work_below_an_unknown_level_is_left_out_with_the_remedy",
        f"{_E2E}/test_forecasts.py::test_the_simulator_and_the_queue_give_the_same_times",
    ),
    "Work that says with how few pods it goes on": (
        f"{_SHRINKING}::test_pods_are_given_back_before_a_younger_job_of_lower_priority_is_evicted",
        f"{_CONSOLIDATION}::test_an_elastic_job_gives_a_pod_back_if_that_lets_wider_work_start",
    ),
    "| Indexed Job whose pods run together": (
        f"{_SHRUNK}::test_a_job_gives_pods_back_goes_on_and_grows_again",
    ),
    "| [MiniCluster](minicluster.md)": (
        f"{_SHRUNK}::test_a_minicluster_gives_its_highest_ranks_back_and_grows_again",
    ),
    "| Deployment, ReplicaSet": (
        f"{_SHRUNK}::test_a_deployment_gives_pods_above_its_floor_back_and_grows_again",
    ),
    "| StatefulSet": (f"{_SHRUNK}::test_a_statefulset_gives_its_highest_ordinals_back_and_grows_again",),
    "| worker group of a [RayCluster]": (
        f"{_SHRUNK}::test_a_raycluster_gives_workers_back_and_grows_again",
        f"{_FLOORS}::test_a_gang_gives_workers_above_their_floor_back_and_never_its_head",
    ),
    "| workers of an elastic [PyTorchJob]": (
        f"{_SHRUNK}::test_an_elastic_pytorchjob_gives_workers_back_and_grows_again",
        f"{_FLOORS}::test_the_first_worker_never_ends_alone",
    ),
    "| everything else": (f"{_MOLDABLE}::test_work_that_needs_all_its_pods_is_not_moldable",),
    "*In its turn*": (
        f"{_SHRUNK}::test_a_minicluster_gives_its_highest_ranks_back_and_grows_again",
        f"{_SHRUNK}::test_a_raycluster_gives_workers_back_and_grows_again",
    ),
    "- **Exactly the pods on the nodes that are needed end**": (
        f"{_SHRINKING}::test_a_job_gives_back_as_few_pods_as_the_other_needs_and_goes_on",
        f"{_SHRINKING}::test_the_pods_that_lose_least_end",
    ),
    "- **Where only the last pods can go**": (
        f"{_LAST}::test_all_after_a_pod_go_with_it_where_only_its_node_helps",
        f"{_LAST}::test_ordinals_end_from_the_last_one_on",
    ),
    "- **The least is kept.**": (
        f"{_GIVE_BACKS}::test_a_job_of_which_other_pods_failed_meanwhile_keeps_its_least",
        f"{_GIVE_BACKS}::test_workers_of_a_gang_are_evicted_and_as_many_stay_as_their_group_needs",
        f"{_CLUSTER_VICTIMS}::test_a_pod_on_a_lost_node_is_none_by_which_a_job_goes_on",
    ),
    "- **Grace and notice**": (
        f"{_SHRINKING}::test_the_grace_and_the_minimum_run_time_hold_for_pods_too",
        f"{_FLOORS}::test_pods_go_on_together_if_nobody_needs_their_nodes_any_more",
    ),
    "- **Budgets.**": (
        f"{_GIVE_BACKS}::test_the_pod_of_a_slot_that_is_given_back_ends_and_counts_as_no_failure",
        f"{_FLOORS}::test_no_more_end_than_their_budget_allows",
    ),
    "- **Time.**": (f"{_MOLDABLE}::test_work_with_fewer_pods_takes_longer",),
    "- **A crash** between two effects": (
        f"{_SHRUNK}::test_a_queue_that_is_killed_between_two_effects_ends_the_same_pods",
    ),
    "- **If this does not suffice**": (
        f"{_FLOORS}::test_a_gang_that_has_no_more_workers_to_spare_is_evicted_as_a_whole",
        f"{_FLOORS}::test_what_can_be_spared_counts_beside_what_is_evicted",
    ),
    "State `minSize` below `size`": (
        f"{_GIVE_BACKS}::test_of_a_minicluster_the_highest_ranks_end_and_its_smallest_size_stays",
        f"{_SHRUNK}::test_a_minicluster_gives_its_highest_ranks_back_and_grows_again",
    ),
    "With `podManagementPolicy: OrderedReady`": (
        f"{_SHRUNK}::test_a_statefulset_gives_its_highest_ordinals_back_and_grows_again",
    ),
    "`fluxqueue/min-pods` is for pods": (f"{_SIZES}::test_other_pods_cannot_have_a_floor",),
    "- `minReplicas` counts from 1": (f"{_RAY}::test_a_worker_group_goes_on_with_its_smallest_number",),
    "- **With Ray's autoscaler**": (
        f"{_RAY}::test_with_the_autoscaler_only_the_smallest_number_starts_with_the_head",
        f"{_SHRUNK}::test_a_raycluster_gives_workers_back_and_grows_again",
    ),
    "- No further right is needed": (f"{_SHRUNK}::test_a_raycluster_gives_workers_back_and_grows_again",),
    "- The Training Operator creates": (
        f"{_KUBEFLOW}::test_the_first_worker_stays_where_the_others_meet",
        f"{_OPERATOR}::test_an_elastic_job_gives_workers_back_and_its_operator_creates_them_again",
        f"{_SHRUNK}::test_an_elastic_pytorchjob_gives_workers_back_and_grows_again",
    ),
    "- **Not every job survives the end of a worker.**": (
        f"{_KUBEFLOW}::test_an_elastic_job_goes_on_with_fewer_workers_if_ended_ones_come_again",
    ),
    "- While a worker ends": (
        f"{_FLOORS}::test_an_owner_at_its_least_is_suspended_and_no_needed_worker_ends_alone",
    ),
    "- **TrainJobs.**": (f"{_CLUSTER_VICTIMS}::test_what_is_suspended_is_asked_no_budget",),
    "- **Elastic Indexed Jobs**": (f"{_MOLDABLE}::test_work_that_needs_all_its_pods_is_not_moldable",),
    "- **Gangs of Deployments and StatefulSets**": (
        f"{_SIZES}::test_other_pods_cannot_have_a_floor",
        f"{_KINDS}::test_a_gang_of_a_statefulset_makes_room_and_comes_back_as_one",
    ),
}
