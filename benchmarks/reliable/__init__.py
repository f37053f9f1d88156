"""Trials for `benchmarks/reliability.py`: killed writers, damage, hostile content, full disks."""
