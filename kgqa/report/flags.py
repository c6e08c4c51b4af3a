"""The meaning of every flag. Reports explain the flags of a run with it, and the site lists all of them.

A flag counts replies or questions with an anomaly. It changes no score. `tests/unit/test_flags.py` finds the flags that
the code sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kgqa.artifacts.metrics import ANSWERED_BY, Metrics
from kgqa.report.section import Section

# of replies of a model or its server
REPLIES: Mapping[str, str] = {
    "as_chat": "A completion prompt was sent to the chat endpoint, because the server has no other.",
    "base_differs": "The adapter was trained on another file of the same model.",
    "bounded_choice": "The server listed no probability for some options. They share the rest.",
    "control_text": "A message contains a control token of a chat template. The server decides what it means.",
    "cut_prompt": "The server counted far fewer prompt tokens than the prompt has. It truncates prompts.",
    "estimated_thought": "The server does not count the tokens of the reasoning text. kgqa estimated them.",
    "estimated_usage": "The server does not count tokens. kgqa estimated them.",
    "filtered": "A content filter of the server ended the reply.",
    "fixed_temperature": "The server accepts no temperature.",
    "fixed_top_p": "The server accepts no top_p.",
    "no_choice": "The text of the reply names no option. All options got the same probability.",
    "no_effort": "The server accepts no reasoning_effort.",
    "no_logprobs": "The server returns no log-probabilities.",
    "no_prefill": "The server cannot continue a started reply. The model wrote it from the beginning.",
    "no_seed": "The server accepts no seed.",
    "no_system": "The model's chat template has no system message. It is at the start of the user's message.",
    "no_template": "The model has no chat template. It got the messages as plain text.",
    "no_thinking": "The model did not reason as configured.",
    "parsed_choice": "The option was read from the text of the reply, because there are no probabilities.",
    "thought_out": "The reasoning text is truncated, or no answer follows it.",
    "transcript_as_message": "The started reply is in the user's message, because the server cannot continue one.",
    "unconstrained": "The server accepts no JSON schema. The reply can have another form.",
}
# of the answers of methods, counted per question or per step
ANSWERS: Mapping[str, str] = {
    "context_cut": "The retrieved texts did not fit into the prompt. The last ones were omitted.",
    "cut_groups": "verify: the list of names of one entity reached its token limit.",
    "cut_memory": "knowtrace: the knowledge graph as text has more than method.max_memory_tokens tokens.",
    "cut_reply": "A reply reached its token limit.",
    "cut_triples": "verify: a list of triples reached its token limit.",
    "cut_verdict": "safe: a reply without a readable verdict reached its token limit.",
    "empty_answer": "The answer is empty.",
    "empty_evidence": "kgp: the model named no missing evidence.",
    "empty_graph": "The extraction found no triples.",
    "empty_path": "verify: a path was called valid, but contains no triple.",
    "empty_query": "The agent searched for an empty text.",
    "empty_question": "ge_reasoning: no question was generated for a triple. Its words were the query.",
    "empty_retrieval": "A search found no passage.",
    "empty_step": "safe: a reasoning step is empty.",
    "empty_triple": "knowtrace: the object of a triple is none.",
    "fixed_point": "safe: the next retry of a step would repeat an earlier prompt.",
    "forced_answer": "The method reached its limit of steps, and requested an answer.",
    "guided_answer": "safe: the guidance of a retry led to the final answer.",
    "invalid_call": "The agent called an unknown tool, or with wrong arguments.",
    "invalid_turn": "The agent wrote neither a query nor an answer, and got a notice.",
    "left_processes": "The agent ended before the processes that it started.",
    "limit_notice": "The agent got the notice that it can search no more.",
    "malformed_pair": "knowtrace: a line of the exploration is no pair of entity and relation.",
    "malformed_path": "verify: a line of a path is no triple.",
    "malformed_triple": "A line of the extraction is no triple.",
    "missing_passage": "verify: a gold passage is not among the passages of the question.",
    "no_action": "A turn of the agent contains neither a call nor an answer.",
    "no_answer_marker": "The reply lacks the words that introduce the answer. Its last line or sentence is the answer.",
    "no_chain": "trace: all reasoning chains are empty. The reader answered without context.",
    "no_entities": "era_cot: the model named no entity.",
    "no_gold_passage": "verify: none of the gold passages is among the passages of the question.",
    "no_neighbours": "kgp: the passage graph has no new neighbor at a step.",
    "no_pairs": "knowtrace: the exploration names no pair of entity and relation.",
    "no_passage_cited": "safe: no step cites a passage.",
    "no_search": "ge_reasoning: no triple has exactly one unknown. The model answered without passages.",
    "no_seeds": "kgp: the first search found no passage.",
    "no_thought": "ircot: a step generated no sentence.",
    "no_titles": "The model named no page of the corpus. All passages were searched.",
    "no_tool_call": "The agent answered without a call of a tool.",
    "noise": "verify: the question is noise.",
    "not_taught": "The question gives no training example.",
    "passages_dropped": "Passages did not fit into a prompt and were omitted.",
    "path_off_graph": "verify: a triple of the path is not in the graph.",
    "prompted_action": "react: a thought had no action, so kgqa requested one.",
    "repeated_call": "The agent repeated an earlier call.",
    "repeated_evidence": "kgp: the model named the same missing evidence again.",
    "repeated_follow_up": "self_ask: the model asked the same follow-up question again.",
    "repeated_notice": "The agent got the notice that it has searched for this query before.",
    "repeated_query": "corag: a sub-query is repeated.",
    "repeated_search": "The agent searched for the same words again.",
    "repeated_thought": "ircot: a step generated an earlier sentence again.",
    "short_chain": "corag: a chain has fewer steps than method.max_steps.",
    "shortened_prompt": "The server rejected a prompt as too long. It was shortened again.",
    "standstill": "knowtrace: an iteration found no new triple.",
    "structural": "kgp: the question is about the structure of a document.",
    "too_many_calls": "A reply has more calls of tools than are allowed. The others were ignored.",
    "too_many_pairs": "knowtrace: the exploration names more pairs than are allowed. The others were ignored.",
    "too_many_relations": "era_cot: a pair has more relations than are allowed. The others were ignored.",
    "truncated_answer": "The answer reached its token limit.",
    "truncated_thought": "ircot: a sentence reached its token limit.",
    "unfilled": "ge_reasoning: triples still have an unknown at the end.",
    "unfinished": "The method reached its limit of steps without an answer.",
    "unknown_evidence": "The agent named a passage as evidence that no search had found.",
    "unknown_place": "kgp: the pages or tables that the question names do not exist.",
    "unparsable_groups": "verify: the list of names of one entity cannot be read.",
    "unparsable_path": "verify: a path cannot be read.",
    "unparsable_triples": "verify: a list of triples cannot be read.",
    "unparsable_verdict": "safe: the verdict on a step cannot be read.",
    "unreadable_action": "react: a step has no readable action.",
    "unreadable_exploration": "knowtrace: the reply of the exploration cannot be read.",
    "unreadable_reply": "self_ask: a reply is neither a follow-up question nor a conclusion.",
    "unreadable_score": "A relation or an answer was dropped, because its score cannot be read.",
    "unresolved_step": "safe: the last retry of a step was an error, too. The step stays.",
    "unsure_fill": "ge_reasoning: an answer below the confidence threshold was dropped.",
    "untagged_step": "safe: a step lacks its tag.",
    "unverified": "verify: the question could not be verified.",
    "valid": "verify: the question is valid.",
}
# of the extraction of triples
EXTRACTIONS: Mapping[str, str] = {
    "demonstrations_dropped": "Few-shot examples did not fit into the prompt of the extraction.",
    "passage_cut": "The end of a passage did not fit into the prompt of the extraction.",
    "truncated_extraction": "The list of triples reached its token limit. Its complete lines count.",
    "unreadable_entities": "The list of entities cannot be read.",
    "unreadable_triples": "The list of triples cannot be read.",
}
MEANINGS = {**EXTRACTIONS, **ANSWERS, **REPLIES}
# flags with a name of a model
OTHER_MODEL = "Another model than the requested one answered. It can be an alias of the server."
SNAPSHOT = "A dated version of the requested model answered."


def flags_section(metrics: Metrics) -> Section:
    """Return the flags of a run with their numbers of questions or replies, and their meaning."""
    rows = [
        *((flag, f"{count:,}", explain_flag(flag)) for flag, count in metrics.flags.items()),
        *_reply_rows(metrics),
    ]
    text = "A flag counts anomalies in answers, or in replies of the model. It changes no score."
    return Section("Flags", ("flag", "number", "meaning"), rows, (text,))


def _reply_rows(metrics: Metrics) -> Iterator[tuple[str, str, str]]:
    for flag, use in metrics.cost.method.flags.items():
        yield flag, f"{use.calls:,} replies", explain_flag(flag)


def explain_flag(flag: str) -> str:
    """Return the meaning of a flag, or "" for a flag of the user's own method."""
    if flag.startswith(ANSWERED_BY):
        return OTHER_MODEL
    if flag.startswith("snapshot:"):
        return SNAPSHOT
    return MEANINGS.get(flag, "")
