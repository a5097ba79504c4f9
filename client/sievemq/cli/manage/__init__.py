"""Commands that stand on the broker's management API (docs/operating.md): what there is, and changing it."""
