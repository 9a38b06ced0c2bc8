"""What the coordinator keeps: members, studies, jobs, and what came of them."""
