"""`python -m deferkit` is the command `deferkit`."""

from deferkit_command import main

main()
