"""Recorders that trainers of other libraries call. Each imports its library when it is made.

from wherefrom.own_loop.callbacks import LightningRecorder, HuggingFaceRecorder      # or wf.callbacks. ...
"""

from wherefrom.own_loop.callbacks.hugging_face import HuggingFaceRecorder
from wherefrom.own_loop.callbacks.lightning import LightningRecorder

__all__ = ["HuggingFaceRecorder", "LightningRecorder"]
