"""A real Kubernetes control plane, Postgres and our own programs on one machine."""
