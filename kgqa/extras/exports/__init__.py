"""Write finished runs in the formats of other programs, one format per file. `kgqa report --format` offers them."""
