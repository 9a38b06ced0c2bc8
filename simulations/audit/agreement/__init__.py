"""Whether what is released agrees with the law that it is said to have: single outcomes, and all their dependence."""
