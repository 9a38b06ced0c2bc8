"""What every participant must agree on: values and pure functions."""
