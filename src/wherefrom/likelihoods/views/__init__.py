"""Views of quantities and of classes for the report: figures, panels and words. Likelihoods share them."""

from __future__ import annotations

from wherefrom.likelihoods.views import classes, quantiles, quantity

SOURCES = quantity.SOURCES | classes.SOURCES
HOW = quantity.HOW | classes.HOW | quantiles.HOW
