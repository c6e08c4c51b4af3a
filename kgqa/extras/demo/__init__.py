"""The first look: three methods on the same few questions, run on this machine or replayed from recorded calls."""
