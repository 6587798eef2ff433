"""A local cluster: a real Kubernetes control plane, Postgres and the project's programs on one machine."""
