"""Benchmarks: peers side by side in one process, medians and ratios. Nothing here asserts on time."""
