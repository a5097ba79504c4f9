"""The wire format: frames, commands, codec, and the state machine of a connection."""
