"""Nouns and rules of the queue: plain values, without I/O."""
