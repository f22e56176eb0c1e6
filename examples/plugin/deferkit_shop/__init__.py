"""Plug-ins for deferkit: a world, a policy, a pacing and an embedding."""
