"""Attacks on kgqa: faults that it has to survive, seeded, with a table of counts."""
