"""The commands of `kubectl fluxqueue`: one module for each family of commands, with their options and what
they run.

A module is imported when its command is typed, so that the others cost nothing. It has
``add_options(verb, command)``, which describes the command, and ``run(arguments)``, which returns the exit
code. What the commands do is in the modules of `fluxqueue.cli`.
"""
