#!/usr/bin/env python3
"""Starts the plugin of this archive with Python 3.11 or newer."""

import os
import sys

if sys.version_info < (3, 11):
    for newer in ("python3.14", "python3.13", "python3.12", "python3.11"):
        try:
            os.execvp(newer, [newer, *sys.argv])
        except OSError:
            continue
    sys.exit("error: kubectl fluxqueue needs Python 3.11 or newer on the PATH")

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "site"))

from fluxqueue.cli import completion, plugin

sys.exit((completion if "complete" in os.path.basename(sys.argv[0]) else plugin).main())
