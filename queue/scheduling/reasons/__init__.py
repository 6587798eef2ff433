"""Why pending work waits, and whether it could ever start."""
