"""Search over HTTP in the forms of Search-R1 (`/retrieve`) and FlashRAG's servers (`/search`, `/batch_search`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AliasChoices, BaseModel, Field

from kgqa.extras.serve.session import AgentSession
from kgqa.types import Json, Passage

MOST_PASSAGES = 1_000  # of one search
Several = Annotated[int, Field(ge=1, le=MOST_PASSAGES)]
QUERIES = Field(validation_alias=AliasChoices("queries", "query"))
COUNT = Field(default=None, validation_alias=AliasChoices("topk", "top_k", "top_n", "k"))
SCORES = Field(default=False, validation_alias=AliasChoices("return_scores", "return_score"))


class RetrieveRequest(BaseModel):
    """A query, or several in one batch."""

    queries: Annotated[str | list[str], QUERIES]
    count: Annotated[Several | None, COUNT] = None
    scores: Annotated[bool, SCORES] = False

    @property
    def texts(self) -> list[str]:
        return [self.queries] if isinstance(self.queries, str) else self.queries


async def retrieve(body: Mapping[str, Json], session: AgentSession) -> Json:
    """Answer `/retrieve`: `result` has a list per query, and of a single query its own list.

    A score is the reciprocal of the rank, because retrievers have no common scale.
    """
    request, rankings = await _search(body, session)
    results = [
        [
            {"document": document_json(passage), "score": 1 / rank}
            if request.scores
            else document_json(passage)
            for rank, passage in enumerate(passages, start=1)
        ]
        for passages in rankings
    ]
    return {"result": results[0] if isinstance(request.queries, str) else results}


async def search(body: Mapping[str, Json], session: AgentSession) -> Json:
    """Answer `/search` and `/batch_search`: documents, or with `return_score` documents and their scores."""
    request, results = await _search(body, session)
    documents: list[Json] = [
        [document_json(passage) for passage in passages] for passages in results
    ]
    scores: list[Json] = [
        [1 / rank for rank in range(1, len(passages) + 1)] for passages in results
    ]
    if isinstance(request.queries, str):
        documents, scores = documents[0], scores[0]
    return [documents, scores] if request.scores else documents


async def _search(
    body: Mapping[str, Json], session: AgentSession
) -> tuple[RetrieveRequest, Sequence[Sequence[Passage]]]:
    request = RetrieveRequest.model_validate(body)
    return request, await asyncio.gather(
        *(session.search(query, request.count) for query in request.texts)
    )


def document_json(passage: Passage) -> dict[str, Json]:
    """Return a passage as Search-R1's corpus has it, with its title and text also alone."""
    contents = f'"{passage.title}"\n{passage.text}'
    return {"id": passage.id, "contents": contents, "title": passage.title, "text": passage.text}
