"""What the coordinator stores: members, studies, jobs, and their results."""
