"""The decision service: learn eventually, spend exactly."""
