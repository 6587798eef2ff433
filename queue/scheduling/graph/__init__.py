"""Fluxion's graph as it is to be, and what its calls need to know."""
