"""The client of the Kubernetes API server that all services use."""
