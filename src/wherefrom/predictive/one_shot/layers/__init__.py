"""The rules that come with the library: closed forms where there are any, and what is approximate says so.

Throughout, what is not carried by shared factors is independent from entry to entry. That is exact for the first layer
of a network with independent weights, and for the masks of dropout; after a layer, its units share their inputs, and
after a convolution, its positions share their weights: `covariance="full"` follows the former, factors the main part of
both.

arithmetic.py is what weights.py, normalisation.py and shapes.py build on; activations.py and pooling.py stand alone.
"""
