"""Certificates, and the server of every port that uses them."""
