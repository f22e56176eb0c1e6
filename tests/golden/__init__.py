"""Digests of states and decisions that the last version with another core came to, and state files that it wrote.

`golden.json` was made by the commit before the core was rewritten (3d62ee9), with the functions `fingerprint`, `live`,
`lives` and `long_runs` below over its own state. Digests of estimates with an embedding depend on the BLAS library that
trains it, which is named in the file. `version3.py` has the program of the files `version3*`.
"""
