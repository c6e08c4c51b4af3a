"""Knowledge graphs of triples: extract, parse, store, import, export and measure them, and SAFE's verification."""
