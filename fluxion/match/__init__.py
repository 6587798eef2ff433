"""Matching: jobspecs, match policies, the traverser and its shortcuts, later starts,
and explanations of failures.
"""
