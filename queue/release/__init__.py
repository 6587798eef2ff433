"""Releases allocated workloads onto their nodes."""
