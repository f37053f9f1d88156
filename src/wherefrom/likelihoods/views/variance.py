"""The part that views share whose doubt is a variance."""

from __future__ import annotations

import math
from typing import Any

from wherefrom.predictive.sources import Sources


class ByVariance:
    """A view of a prediction whose sources split a variance. Abstract."""

    prediction: Any

    def sources(self) -> Sources:
        shares: Sources = self.prediction.sources()
        return shares

    def amounts(self, amount: float) -> dict[str, float]:
        return {"std": math.sqrt(max(0.0, amount))}
