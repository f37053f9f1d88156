"""Networks that were trained elsewhere: recorders for anybody's own loop, and posteriors of what they leave."""
