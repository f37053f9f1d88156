"""One-shot prediction: mean and variance in one pass for each member, with no sampling (assumed density filtering).

Every layer maps the moments of its inputs and weights to the moments of its outputs. graph.py traces the user's module
and runs it on moments, rules.py is where rules are registered, heads.py, layers and scalars.py hold those of the
library, and propagate.py does it for all members of a posterior. The files import each other, and none of them this
package, which only sees to it that all rules are registered.
"""

import wherefrom.predictive.one_shot.heads as heads
from wherefrom.predictive.one_shot.graph import NoRuleError
from wherefrom.predictive.one_shot.layers import (
    activations,
    arithmetic,
    attention,
    normalisation,
    pooling,
    shapes,
    weights,
)
from wherefrom.predictive.one_shot.moments import Moments
from wherefrom.predictive.one_shot.rules import elementwise, rule

# Importing them registers their rules.
_ = (heads, activations, arithmetic, attention, normalisation, pooling, shapes, weights)

__all__ = ["Moments", "NoRuleError", "elementwise", "rule"]
