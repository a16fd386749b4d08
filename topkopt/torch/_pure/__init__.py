"""The operators in torch operations alone, for devices and dtypes that the kernels do not know.

Every function takes float32 or float64 vectors along the last dimension, with -inf for entries that
must stay empty, and makes the same number of passes whatever the numbers are: nothing is asked of
the device. Sums along a vector are trees (`scan`), so that equal input gives equal bits.
"""
