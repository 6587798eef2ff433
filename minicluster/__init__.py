"""MiniClusters: from the spec of a Flux cluster to its objects and to what is injected into its pods.
Pure: no I/O.
"""
