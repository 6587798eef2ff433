"""Preemption, and consolidation: work that ends or shrinks so that other work starts."""
