"""Repairs what a crash or a restored backup left: sweep, doctor, adoption, retention."""
