"""The calls of flux-sched's Fluxion (0.54), answered exactly as it answers them, errors included."""
