"""From a file of rows and columns to predictions: what the commands fit, predict, sources and report do."""
