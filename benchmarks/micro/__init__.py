"""Micro benchmarks: one function at a time, in this process."""
