"""The engine: one graph with its jobs and its clock, and every change of them."""
