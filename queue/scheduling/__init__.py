"""Which pending workload gets which nodes, and when."""
