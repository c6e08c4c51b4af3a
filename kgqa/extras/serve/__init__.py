"""Connect programs of others: a server that speaks their protocols, and the agents that call it."""
