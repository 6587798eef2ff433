"""Plain Kubernetes, fluxqueue and Kueue under the same work on the same local control plane, in turn:
`make bench-cluster`.
"""
