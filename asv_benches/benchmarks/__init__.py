"""Benchmarks of topkopt: speed is measured here, and only here, as ratios within one run."""
