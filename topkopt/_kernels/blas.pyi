# The matrix products, which Cython modules take: it has no Python functions.
