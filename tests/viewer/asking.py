"""Putting a question in the ask tab."""

from __future__ import annotations

import json

from tests.e2e.browser import Browser

ENDED = "document.querySelector('.told') && document.querySelector('#ask-cancel').hidden"


def ask(tab: Browser, question: str, method: str) -> None:
    """By keys alone: the question box has the focus. What was asked before stays until this one begins."""
    tab.wait("document.querySelector('#ask-cancel').hidden")
    tab.value("document.querySelector('.told')?.classList.add('before')")
    tab.wait("document.activeElement.id === 'ask-question'")  # once the tab knows what can be asked
    box = "document.querySelector('#ask-method')"
    tab.value(f"{box}.value = {json.dumps(method)}; {box}.dispatchEvent(new Event('change'))")
    tab.value(f"document.querySelector('#ask-question').value = {json.dumps(question)}")
    tab.press("Enter")
    tab.wait(f"document.querySelector('.told:not(.before) h2')?.textContent === {json.dumps(question)}")
