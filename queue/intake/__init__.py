"""From an object of the cluster to a workload in the tables."""
