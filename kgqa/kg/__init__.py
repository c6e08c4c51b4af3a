"""Knowledge graphs of triples: extract, parse, import, export and measure them, and SAFE's verification."""
