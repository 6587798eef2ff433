"""The admission webhook: a pure decision and the HTTPS server around it."""
