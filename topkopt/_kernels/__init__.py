"""Rows in, rows out: what is compiled and knows no Python objects.

In the order in which they build on each other: `lambert` and `select` (numbers and rows);
`largest`, `knapsack`, `topk`, `weighted`, `bipartite`, `entropy` (find what the losses need of a
row, or the threshold of a set); `blas`.
"""
