"""What is measured and limited: memory, namespaces, slow consumers, counts."""
