"""What another budget would have done, from the log of what was done."""
