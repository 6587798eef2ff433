"""Certificates and their rotation."""
