"""The decision service: learn eventually, spend exactly."""

from deferkit.extras import needs

needs("serve")
