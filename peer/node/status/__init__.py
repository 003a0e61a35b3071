"""What a node says of itself: how far it is, why no further, and the file that tells others."""
