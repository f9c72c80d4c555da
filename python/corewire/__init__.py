"""Common random sketches: m numbers travel instead of d, and every machine rebuilds the same vector.

`Sketch` and `Quantiser` work on numpy arrays. `corewire.torch` averages the momentum of PyTorch models over slow links.
"""

from corewire._native import Quantiser, Sketch, __version__

__all__ = ["Quantiser", "Sketch", "__version__"]
