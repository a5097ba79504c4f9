"""How each client plays the parts of a workload; started by ``benchmarks/macro/role.py`` under a Python that has it."""
