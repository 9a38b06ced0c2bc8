"""One study from the first batch to the last: when to ask, and what is published."""
