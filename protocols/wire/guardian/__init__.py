"""What travels between a guardian and who computes with it."""
