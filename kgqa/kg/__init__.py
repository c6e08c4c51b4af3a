"""Knowledge graphs: extract the triples of passages, parse, import, export and measure them."""
