# Only Cython modules use this one: it has no Python functions.
