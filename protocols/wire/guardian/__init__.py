"""What a guardian and its counterpart send each other."""
