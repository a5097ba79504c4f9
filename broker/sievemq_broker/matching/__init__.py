"""Which selectors match a message, and which messages a selector may match, without asking each: indexes over many."""
