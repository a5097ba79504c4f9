"""Measurements and limits: memory, namespaces, slow consumers, counts."""
