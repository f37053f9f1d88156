"""Other libraries beside this one: the same network, epochs, batches, learning rate and members on the same splits."""
