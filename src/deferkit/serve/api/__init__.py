"""The HTTP interface as types: all request bodies, replies and enumerated values, by topic. No framework."""
