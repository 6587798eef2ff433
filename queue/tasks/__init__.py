"""Control tasks as procrastinate jobs, requests for them, and batches of keys."""
