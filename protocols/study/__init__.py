"""What is agreed before the first vote: the study, its terms, and its file."""
