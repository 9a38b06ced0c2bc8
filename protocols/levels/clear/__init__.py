"""What a level of confidentiality is, and the simplest: votes that the coordinator sees."""
