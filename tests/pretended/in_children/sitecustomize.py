"""Give the pretended device to every Python process that has this folder on its path."""

from pretended import device

if device.IS_PRETENDED:
    device.register()
