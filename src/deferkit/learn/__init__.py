"""The learner. It does not print, log, read a clock or use the network."""
