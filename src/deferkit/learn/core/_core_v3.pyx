# The same core, compiled for processors with AVX2 and FMA (x86-64-v3); see setup.py.
include "_core.pyx"
