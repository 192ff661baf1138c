"""Benchmarks: ratios against baselines that are measured in the same run."""
