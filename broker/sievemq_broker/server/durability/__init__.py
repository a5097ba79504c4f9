"""Nothing is confirmed before it is on disk: the store's thread, and how far connections had come."""
