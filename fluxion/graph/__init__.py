"""The resource graph: vertices, pools of leaves, jobs, constraints, JGF, and nodes of Kubernetes."""
