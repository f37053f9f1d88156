"""Files: one atomic write, one codec between our values and JSON, one stand-in for code that no file holds.

Nothing is pickled, and reading a file never runs code. This room imports no other.
"""
