"""MiniClusters: their objects, their services pod, their status and their end."""
