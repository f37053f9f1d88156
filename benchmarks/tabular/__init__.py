"""The parts of `benchmarks/tables.py`: tables, contenders, scores, and the page."""
