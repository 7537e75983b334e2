"""The core: graph, precision, state, inference, learning, algorithms, normalisation. Imports torch and itself only."""
