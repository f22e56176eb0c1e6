"""The numeric core: no printing, no clock, no network."""
