"""The cost of a training step: by algorithm and network (``steps``), and how it grows (``scaling``)."""
