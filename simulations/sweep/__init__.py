"""A sweep: many settings on votes that are cast once, with intervals over seeds and partitions."""
