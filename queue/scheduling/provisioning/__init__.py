"""Nodes that an autoscaler is asked for."""
