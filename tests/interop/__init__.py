"""Programs of other systems against ours."""
