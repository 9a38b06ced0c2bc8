"""The stages of a run: inputs, votes, labels, students, and their replay."""
