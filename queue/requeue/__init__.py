"""Evicts workloads from their nodes and requeues them, or ends them."""
