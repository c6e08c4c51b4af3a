"""The command of the server, and the service that runs agents."""

from kgqa.cli.parsing import Command
from kgqa.util.registry import Extra

NOTES = """Protocols: OpenAI's /v1/chat/completions, /v1/completions and /v1/responses, Anthropic's /v1/messages,
Search-R1's /retrieve, FlashRAG's /search and /batch_search, and MCP with the tools search and read (/mcp). Equal
requests are answered from the call cache. engine.budget_usd= limits the cost. To run an agent on questions and score
it, use kgqa run method=command (docs/AGENTS.md)."""

EXTRA = Extra(
    commands={
        "inspect": (
            Command(
                "export",
                "export an environment for reinforcement learning",
                "kgqa export env dataset=demo",
            ),
            Command(
                "export env",
                "write questions, scores and an agent as an environment of verifiers 0.4",
                'kgqa export env dataset=demo method.command="python agent.py" --out kgqa_demo',
                "kgqa.extras.serve.export_env:export_env",
                """
                key=value …  as for kgqa run method=command: dataset=, retriever=, limit=, method.command=, scoring=
                --out PATH   a new folder (default: kgqa-DATASET)""",
            ),
            Command(
                "serve",
                "serve a model and a search to agents, with the call cache and the costs of kgqa",
                """kgqa serve model=smollm2_135m retriever=bm25 dataset=demo
                kgqa serve retriever=entity_graph dataset=musique --port 9000""",
                "kgqa.extras.serve.command:serve",
                """
                key=value …  as for kgqa run: model= or server=, and retriever= with dataset=. method.passages=, \
                    method.temperature= and method.max_tokens= are for requests without such a key
                --port PORT  port, or 0 for any free port (default: 8745)
                --stdio      serve one MCP client on standard input and output, which starts this command itself
                --host HOST  address to listen on (default: 127.0.0.1). Another one needs a token, which is printed""",
                notes=NOTES,
            ),
        )
    },
    functions={
        "agents": "kgqa.extras.serve.agents:Agents",
        "current_tools": "kgqa.extras.serve.tools:current_tools",
    },
)
