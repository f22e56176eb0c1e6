"""What callers want of a policy: each command reads what it needs, changes what it must, or raises."""
