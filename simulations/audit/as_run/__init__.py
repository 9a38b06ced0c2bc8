"""The audit of whole studies, as they run: parties, ballots, servers and their noise, at each level."""
