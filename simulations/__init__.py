"""Many parties on one host: experiments over the same Party and Coordinator."""
