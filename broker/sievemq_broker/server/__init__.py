"""The broker's rim: sockets, the loop, the clock, the disk's thread and HTTP, around the sessions."""
