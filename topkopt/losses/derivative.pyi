# The derivatives of proxes, which losses take in Cython: it has no Python functions.
