"""Checks of a store against its logs, and what another budget would have done."""
