"""Commands on a policy: each names the rows to read, then changes the policy or raises a `Problem`."""
