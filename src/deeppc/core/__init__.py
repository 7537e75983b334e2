"""The core: graph, precision, engine, algorithms, normalisation. Imports torch and nothing else."""
