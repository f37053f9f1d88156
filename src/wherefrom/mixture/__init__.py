"""What can be made of a posterior, a labelled mixture of laws: predictions, parts, other weights, more."""
