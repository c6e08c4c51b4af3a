"""kgqa: multi-hop question answering with knowledge-graph-grounded RAG, as experiments one can trust."""
