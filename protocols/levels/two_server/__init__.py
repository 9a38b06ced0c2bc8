"""Votes shared between a coordinator and a guardian: neither sees a vote, both compute noisy labels (two_server)."""
