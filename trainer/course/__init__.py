"""The course of a training of any kind: counters and clock, what is due when, how it ends, what can be continued."""
