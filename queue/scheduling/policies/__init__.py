"""Who goes next: scheduling policies as pure passes over the pending workloads."""
