"""Macro benchmarks: producer, broker and consumer as separate processes."""
