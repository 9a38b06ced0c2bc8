"""Adding votes up with noise, at each level of confidentiality."""
