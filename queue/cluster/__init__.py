"""What the cluster is: caches of its objects, nodes, pods of others, DaemonSets, owners."""
