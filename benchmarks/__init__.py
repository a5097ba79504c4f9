"""Benchmarks of SieveMQ; ``python -m benchmarks.run`` is the command."""
