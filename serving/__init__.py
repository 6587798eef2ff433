"""The server of every port: its certificate, its connections and their limits, its probes."""
