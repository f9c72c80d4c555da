"""Common random sketches: m numbers travel instead of d, and every machine rebuilds the same vector.

`Sketch` and `Quantiser` work on numpy arrays. `corewire.torch` averages the momentum of PyTorch models over slow links.
"""

try:
    from corewire._native import Quantiser, Sketch, __version__
except ModuleNotFoundError as error:
    if error.name != "corewire._native":
        raise
    raise ImportError(
        f"corewire: {__path__[0]} is the source folder, which has no native half: run `pip install ./python` in the folder above it, and "
        "start Python in another folder"
    ) from None

__all__ = ["Quantiser", "Sketch", "__version__"]
