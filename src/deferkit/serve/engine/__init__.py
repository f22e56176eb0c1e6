"""The one writer of a process's policies: group commit, ownership, the queue, periodic maintenance."""
