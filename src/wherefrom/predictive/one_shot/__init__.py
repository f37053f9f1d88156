"""One-shot prediction: mean and variance in one pass for each member, with no sampling (assumed density filtering).

Every layer maps the moments of its inputs and weights to the moments of its outputs. graph.py traces the user's module
and runs it on moments, rules.py is where rules are registered, layers and scalars.py hold those that come with the
library, and propagate.py does it for all members of a posterior.
"""

from wherefrom.predictive.one_shot.graph import NoRuleError
from wherefrom.predictive.one_shot.moments import Moments
from wherefrom.predictive.one_shot.rules import elementwise, rule

__all__ = ["Moments", "NoRuleError", "elementwise", "rule"]
