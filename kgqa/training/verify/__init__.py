"""`kgqa data verify`: find the questions of a benchmark that their gold passages do not answer (SAFE, §3.2)."""
