"""deeppc: train deep predictive coding networks where ``loss.backward()`` stood."""

from deeppc.algorithms import Algorithm, Result
from deeppc.graph import Chain, Graph, Sum

__version__ = "0.1.0"
__all__ = ["Algorithm", "Chain", "Graph", "Result", "Sum", "__version__"]
