"""Figures of a policy over time, for the console: folded from its log, cached in memory, updated on request."""
