"""Rows in, rows out: what is compiled and knows no Python objects.

In the order in which they build on each other: `lambert` and `select` (numbers and rows);
`knapsack`, `topk`, `weighted`, `bipartite` and `entropy` (one set each: find its threshold); `blas`.
"""
