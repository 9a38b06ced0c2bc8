"""Many parties on one host: experiments with the same Party and Coordinator as a deployment."""
