"""The data-dependent bounds of the papers, and the mark that every figure that depends on votes carries."""
