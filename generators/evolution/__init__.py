"""What the claims and runs of evolutionary generators share."""
