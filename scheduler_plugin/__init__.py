"""Binding released pods to exactly the nodes that the queue chose:
the program behind ``schedulerName: FluxionScheduler``.
"""
