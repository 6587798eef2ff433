"""Certificates: the webhook's TLS pair and its self-managed authority."""
