"""Indexes over many selectors and messages: which selectors match a message, and which messages a selector may match,
without evaluating each."""
