"""kgqa beside plain loops over the same HTTP endpoint: what a call costs the program itself."""
