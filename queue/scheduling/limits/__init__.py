"""Limits, budgets and quotas: what may start, and what has used how much."""
