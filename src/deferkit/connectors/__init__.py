"""Connectors: deferkit inside other people's frameworks. Each module needs its own extra."""
