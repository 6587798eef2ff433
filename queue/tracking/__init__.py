"""Follows released workloads: which pod has which slot, and which slots end."""
