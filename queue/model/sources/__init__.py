"""Gangs as other projects write them: for each project, which pods belong together,
and how many of them start together.
"""
