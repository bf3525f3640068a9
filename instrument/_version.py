"""The versions, ours and those that we work with, in a module that imports nothing."""

__version__ = "0.1.0"

#: The first and the last release of MindSpore that is tested, major and minor number.
SUPPORTED_MINDSPORE = ((2, 7), (2, 10))
