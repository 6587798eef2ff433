"""Which nodes a pod can run on, as the stock scheduler decides it: pure checks."""
