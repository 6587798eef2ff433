"""Entry points: `fluxqueue` and the kubectl plugin."""
