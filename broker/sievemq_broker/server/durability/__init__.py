"""Durability: the store's thread, confirms after the sync, and the progress of connections."""
