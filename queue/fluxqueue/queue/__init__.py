"""The queue service: intake, store, scheduling, release and tracking."""
